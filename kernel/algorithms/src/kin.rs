//! The kin of processes: parents and children, process groups and sessions, and what a parent can
//! learn of its children by waiting.
//!
//! A process is in one group, and a group is in one session; both have the number of the process
//! that made them. Numbers are never used twice. All searches are in ordered maps, so none visits
//! processes that it does not look for, and no operation but [`Kin::insert`] needs memory: a node
//! moves from one place of a map to another.

use cops_abi::Errno;
use cops_fallible::map::Spare;
use cops_fallible::{Map, OutOfMemory};

/// The number of a process, a group or a session; 0 is none.
pub type Id = u32;

/// A child of a parent: sorted by parent, then by group.
type ChildKey = (Id, Id, Id);
/// A member of a group.
type MemberKey = (Id, Id);

/// What a parent has not learned yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The process has ended.
    Ended,
    /// It is stopped.
    Stopped,
    /// It goes on after it was stopped.
    Continued,
}

impl News {
    const ALL: [News; 3] = [News::Ended, News::Stopped, News::Continued];

    /// A bit for a set of news.
    #[must_use]
    pub const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Which children are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Any.
    Any,
    /// This one.
    Child(Id),
    /// Those in this group.
    Group(Id),
}

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinship {
    /// 0 for an orphan.
    pub parent: Id,
    /// Its group.
    pub group: Id,
    /// Its session.
    pub session: Id,
    /// Whether it has executed another program than the one that its parent has started.
    pub has_executed: bool,
    news: Option<News>,
    /// Number of signals about its news that the parent is still to get.
    signals_due: u32,
}

/// What a search for news of children finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<T> {
    /// News of a child.
    News(T),
    /// News about which the parent is still to get a signal.
    SignalDue,
    /// Nothing new.
    Nothing,
}

/// Memory for the places of one process.
pub struct Places {
    kin: Spare<Id, Kinship>,
    member: Spare<MemberKey, ()>,
    child: Spare<ChildKey, ()>,
    news: Spare<ChildKey, ()>,
}

impl Places {
    /// Memory for a process.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn try_new() -> Result<Self, OutOfMemory> {
        Ok(Self {
            kin: Spare::try_new()?,
            member: Spare::try_new()?,
            child: Spare::try_new()?,
            news: Spare::try_new()?,
        })
    }
}

/// The kin of all processes.
pub struct Kin {
    all: Map<Id, Kinship>,
    members: Map<MemberKey, ()>,
    children: Map<ChildKey, ()>,
    /// By [`News`].
    news: [Map<ChildKey, ()>; 3],
    /// Nodes of processes without news, by process; the key is not used.
    quiet: Map<ChildKey, ()>,
}

impl Default for Kin {
    fn default() -> Self {
        Self::new()
    }
}

/// The first of `keys` that is `parent`'s child and one of `which`.
fn first(keys: &Map<ChildKey, ()>, parent: Id, which: Which, group: Option<Id>) -> Option<Id> {
    match which {
        Which::Child(child) => keys.contains_key(&(parent, group?, child)).then_some(child),
        Which::Any => {
            let (&(found, _, child), ()) = keys.at_or_after(&(parent, 0, 0))?;
            (found == parent).then_some(child)
        }
        Which::Group(group) => {
            let (&(found, in_group, child), ()) = keys.at_or_after(&(parent, group, 0))?;
            (found == parent && in_group == group).then_some(child)
        }
    }
}

impl Kin {
    /// No processes.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            all: Map::new(),
            members: Map::new(),
            children: Map::new(),
            news: [Map::new(), Map::new(), Map::new()],
            quiet: Map::new(),
        }
    }

    /// Adds process `id`, a child of `parent`, with the group and the session of that. Without a
    /// parent, it begins a session.
    pub fn insert(&mut self, id: Id, parent: Id, places: Places) {
        let above = self.all.get(&parent);
        let (group, session) = above.map_or((id, id), |above| (above.group, above.session));
        let kinship =
            Kinship { parent, group, session, has_executed: false, news: None, signals_due: 0 };
        self.all.insert_with(places.kin, id, kinship);
        self.members.insert_with(places.member, (group, id), ());
        self.children.insert_with(places.child, (parent, group, id), ());
        self.quiet.insert_with(places.news, (0, 0, id), ());
    }

    /// Removes process `id`.
    pub fn remove(&mut self, id: Id) {
        let Some(kinship) = self.all.remove(&id) else { return };
        let key = (kinship.parent, kinship.group, id);
        self.members.remove(&(kinship.group, id));
        self.children.remove(&key);
        match kinship.news {
            Some(news) => self.news[news as usize].remove(&key),
            None => self.quiet.remove(&(0, 0, id)),
        };
    }

    /// What is known of process `id`.
    #[must_use]
    pub fn get(&self, id: Id) -> Option<&Kinship> {
        self.all.get(&id)
    }

    /// Process `id` has executed another program.
    pub fn has_executed(&mut self, id: Id) {
        if let Some(kinship) = self.all.get_mut(&id) {
            kinship.has_executed = true;
        }
    }

    /// Gives process `id` another parent and another group, in its places in all maps.
    fn change(&mut self, id: Id, parent: Id, group: Id, session: Id) {
        let Some(kinship) = self.all.get_mut(&id) else { return };
        let before = *kinship;
        (kinship.parent, kinship.group, kinship.session) = (parent, group, session);
        let (from, to) = ((before.parent, before.group, id), (parent, group, id));
        if let Some(((), node)) = self.members.take(&(before.group, id)) {
            self.members.insert_with(node, (group, id), ());
        }
        if let Some(((), node)) = self.children.take(&from) {
            self.children.insert_with(node, to, ());
        }
        if let Some(news) = before.news {
            let map = &mut self.news[news as usize];
            if let Some(((), node)) = map.take(&from) {
                map.insert_with(node, to, ());
            }
        }
    }

    /// The first child of `parent`.
    #[must_use]
    pub fn first_child(&self, parent: Id) -> Option<Id> {
        first(&self.children, parent, Which::Any, None)
    }

    /// Process `id` has lost its parent.
    pub fn orphan(&mut self, id: Id) {
        if let Some(&Kinship { group, session, .. }) = self.all.get(&id) {
            self.change(id, 0, group, session);
        }
    }

    /// Replaces what the parent of process `id` has not learned yet. News of the end stay.
    pub fn set_news(&mut self, id: Id, news: Option<News>) {
        let Some(kinship) = self.all.get_mut(&id) else { return };
        if kinship.news == news || kinship.news == Some(News::Ended) {
            return;
        }
        let before = core::mem::replace(&mut kinship.news, news);
        let key = (kinship.parent, kinship.group, id);
        let taken = match before {
            Some(before) => self.news[before as usize].take(&key),
            None => self.quiet.take(&(0, 0, id)),
        };
        let Some(((), node)) = taken else { return };
        match news {
            Some(news) => self.news[news as usize].insert_with(node, key, ()),
            None => self.quiet.insert_with(node, (0, 0, id), ()),
        };
    }

    /// The parent of process `id` is to get a signal about its news.
    pub fn signal_is_due(&mut self, id: Id) {
        if let Some(kinship) = self.all.get_mut(&id) {
            kinship.signals_due += 1;
        }
    }

    /// The parent of process `id`, which may be gone by now, has got one of the signals that were
    /// due.
    pub fn signal_is_sent(&mut self, id: Id) {
        if let Some(kinship) = self.all.get_mut(&id) {
            kinship.signals_due -= 1;
        }
    }

    /// A child of `parent` with news of the kinds in `wanted` ([`News::bit`]), the end first. News
    /// about which a signal is due are only found if `early`.
    ///
    /// # Errors
    /// `ECHILD` if there is no such child.
    pub fn find_news(
        &self,
        parent: Id,
        which: Which,
        wanted: u8,
        early: bool,
    ) -> Result<Found<(Id, News)>, Errno> {
        let group = match which {
            Which::Child(child) => self.all.get(&child).map(|kinship| kinship.group),
            _ => None,
        };
        for news in News::ALL {
            if wanted & news.bit() != 0
                && let Some(child) = first(&self.news[news as usize], parent, which, group)
            {
                let is_due = self.all.get(&child).is_some_and(|kinship| kinship.signals_due > 0);
                let is_early = is_due && !early;
                return Ok(if is_early { Found::SignalDue } else { Found::News((child, news)) });
            }
        }
        let any = first(&self.children, parent, which, group);
        any.map(|_| Found::Nothing).ok_or(Errno::ECHILD)
    }

    /// The member of `group` with the lowest number from `id` on.
    #[must_use]
    pub fn member_from(&self, group: Id, id: Id) -> Option<Id> {
        let (&(found, member), ()) = self.members.at_or_after(&(group, id))?;
        (found == group).then_some(member)
    }

    /// `setpgid(id, group)` of process `caller`: moves itself or a child that has executed nothing
    /// into `group`, which may be new if it has the number of the process.
    ///
    /// # Errors
    /// `ESRCH`, `EACCES`, `EPERM`, as on Linux.
    pub fn set_group(&mut self, caller: Id, id: Id, group: Id) -> Result<(), Errno> {
        let own = *self.all.get(&caller).ok_or(Errno::ESRCH)?;
        let moved = *self.all.get(&id).ok_or(Errno::ESRCH)?;
        if id != caller {
            if moved.parent != caller {
                return Err(Errno::ESRCH);
            }
            if moved.session != own.session {
                return Err(Errno::EPERM);
            }
            if moved.has_executed {
                return Err(Errno::EACCES);
            }
        }
        // The leader of a session stays.
        if moved.session == id {
            return Err(Errno::EPERM);
        }
        if group != id && self.session_of_group(group) != Some(own.session) {
            return Err(Errno::EPERM);
        }
        self.change(id, moved.parent, group, moved.session);
        Ok(())
    }

    /// `setsid()` of process `id`.
    ///
    /// # Errors
    /// `EPERM` if there is a group with its number.
    pub fn begin_session(&mut self, id: Id) -> Result<(), Errno> {
        let parent = self.all.get(&id).ok_or(Errno::ESRCH)?.parent;
        if self.member_from(id, 0).is_some() {
            return Err(Errno::EPERM);
        }
        self.change(id, parent, id, id);
        Ok(())
    }

    /// The session of a group that exists.
    #[must_use]
    pub fn session_of_group(&self, group: Id) -> Option<Id> {
        let member = self.member_from(group, 0)?;
        self.all.get(&member).map(|kinship| kinship.session)
    }

    /// Whether `group` is orphaned: no member of it has a parent in another group of the same
    /// session, which could make it go on. Examines at most `limit` members.
    #[must_use]
    pub fn is_orphaned(&self, group: Id, limit: usize) -> bool {
        let mut from = 0;
        for _ in 0..limit {
            let Some(member) = self.member_from(group, from) else { break };
            from = member + 1;
            let has_ended =
                self.all.get(&member).is_some_and(|kinship| kinship.news == Some(News::Ended));
            if self.has_shell(member) && !has_ended {
                return false;
            }
        }
        true
    }

    /// Whether `id` has, or had until it ended, a parent in another group of the same session: that
    /// keeps its group from being orphaned.
    #[must_use]
    pub fn has_shell(&self, id: Id) -> bool {
        let Some(kinship) = self.all.get(&id) else { return false };
        let parent = self.all.get(&kinship.parent);
        parent.is_some_and(|parent| {
            parent.group != kinship.group && parent.session == kinship.session
        })
    }
}

#[cfg(test)]
#[path = "kin_tests.rs"]
mod tests;
