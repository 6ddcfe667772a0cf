//! The table of processes: parents, children, and how processes have ended.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::*;

use cops_abi::linux::signal_code;
use cops_abi::syscall::signal as native;
use cops_abi::{Errno, Priority};
use cops_algorithms::kin::{Found, Kin, Kinship, News, Places, Which};
use cops_algorithms::signals::{Set, bit, excluded_by};
use cops_fallible::Map;
use cops_lock::Mutex;

use super::{FIRST_PROCESS, Process, ProcessId, WaitStatus, thread};
use crate::mm::quota::{self, Amounts, Charge, Family, Kind, Membership};

/// Memory for a process's record, apart from what is charged as the process grows.
const RECORD_BYTES: u64 = 4096;

/// The table's record of a process.
struct Record {
    /// Removed when the reaper frees the process.
    process: Option<Arc<Process>>,
    /// Signals to a group, or to all, that were sent before the process was in the table.
    early: Set,
    /// How the process ended, once it is freed.
    status: Option<WaitStatus>,
    /// The signal that has stopped it last.
    stopped_by: u8,
    /// Ticks that it has used, with its children, once it is freed.
    used_ticks: u64,
    /// The charge for this record, until the process is waited for.
    _charge: Charge,
    /// Its limits and its ancestors.
    membership: Membership,
}

struct Table {
    records: Map<ProcessId, Record>,
    kin: Kin,
    next: ProcessId,
}

impl Table {
    fn remove(&mut self, id: ProcessId) {
        self.records.remove(&id);
        self.kin.remove(id);
    }

    fn process(&self, id: ProcessId) -> Option<Arc<Process>> {
        self.records.get(&id)?.process.clone()
    }

    fn parent(&self, id: ProcessId) -> ProcessId {
        self.kin.get(id).map_or(0, |kinship| kinship.parent)
    }

    /// Copies what is known of the kin of a process to where it is read without the table.
    fn publish(&self, id: ProcessId) {
        let process = self.records.get(&id).and_then(|record| record.process.as_ref());
        if let (Some(process), Some(kinship)) = (process, self.kin.get(id)) {
            process.group.store(kinship.group, Relaxed);
            process.session.store(kinship.session, Relaxed);
        }
    }
}

static TABLE: Mutex<Table> = Mutex::new(Table { records: Map::new(), kin: Kin::new(), next: 1 });

/// Reserves a number for a new process of `parent`, with the family that it is the head of.
///
/// # Errors
/// `EAGAIN` if there are too many processes, or there have been 2^29; `ENOMEM`.
pub fn reserve(parent: ProcessId) -> Result<(ProcessId, Family), Errno> {
    let mut table = TABLE.lock();
    if table.next >= thread::FIRST_ID {
        return Err(Errno::EAGAIN);
    }
    let membership = match table.records.get(&parent) {
        Some(record) => Membership::new(record.membership.family())?,
        // The first process, the only child of the kernel.
        None => Membership::first(),
    };
    let family = membership.family();
    let amounts = Amounts::of(Kind::Processes, 1).and(Kind::Memory, RECORD_BYTES);
    let charge = Charge::new(family, &amounts)?;
    let id = table.next;
    membership.set_head(id);
    let places = Places::try_new()?;
    let record = Record {
        process: None,
        early: 0,
        status: None,
        stopped_by: 0,
        used_ticks: 0,
        _charge: charge,
        membership,
    };
    table.records.try_insert(id, record)?;
    table.kin.insert(id, parent, places);
    table.next += 1;
    Ok((id, family))
}

/// Inserts the process for which the number was reserved. Returns the signals that
/// [`keep`] has kept for it.
pub fn insert(process: &Arc<Process>) -> Set {
    let mut table = TABLE.lock();
    let mut early = 0;
    if let Some(record) = table.records.get_mut(&process.id) {
        record.process = Some(process.clone());
        early = core::mem::take(&mut record.early);
    }
    table.publish(process.id);
    early
}

/// Keeps `signal`, unless that is 0, for process `id` if that is being started, and `sender` has
/// authority over it (`None`: the kernel sends it). Returns the process if it is in the table.
pub(super) fn keep(id: ProcessId, signal: u8, sender: Option<Family>) -> Option<Arc<Process>> {
    let mut table = TABLE.lock();
    let record = table.records.get_mut(&id)?;
    let may_send =
        || sender.is_none_or(|sender| quota::is_within(record.membership.family(), sender));
    // What is kept for a process that has ended has no effect.
    if record.process.is_none() && signal != 0 && may_send() {
        record.early = record.early & !excluded_by(signal) | bit(signal);
    }
    record.process.clone()
}

/// Frees a number that no process uses.
pub fn release(id: ProcessId) {
    TABLE.lock().remove(id);
}

/// The process with this number, unless it has ended.
pub fn find(id: ProcessId) -> Option<Arc<Process>> {
    TABLE.lock().process(id)
}

/// The process to charge for the kernel's work on what is left of `family`: the nearest living
/// ancestor, or the head itself if that is not `ended`.
pub(super) fn payer(family: Family, ended: ProcessId) -> Option<Arc<Process>> {
    let table = TABLE.lock();
    let mut heads = quota::heads(family).filter(|&head| head != ended);
    heads.find_map(|head| table.records.get(&head)?.process.clone())
}

/// Number of processes that one portion of [`lower_some`] examines. Checking whether one is a
/// descendant costs as much as the distance of the two.
const PORTION_PROCESSES: usize = 4;

/// Lowers the ceilings of some processes of `family` to `priority`, those with the lowest numbers
/// from `from` on. Returns the number to continue with; `None` if there are no more.
///
/// A process that is started in the meantime has a higher number than its parent. Either it
/// inherits the ceiling that its parent already got here, or it is still to be examined.
pub fn lower_some(family: Family, priority: Priority, from: ProcessId) -> Option<ProcessId> {
    let mut next = from;
    for _ in 0..PORTION_PROCESSES {
        let Entry { id, process, .. } = at_or_after(next)?;
        if let Some(process) = process
            && quota::is_within(process.family, family)
        {
            process.lower_ceiling_to(priority);
        }
        next = id.checked_add(1)?;
    }
    Some(next)
}

/// A process in the table.
pub struct Entry {
    /// Its number.
    pub id: ProcessId,
    /// The number of its parent; 0 if it has none any more.
    pub parent: ProcessId,
    /// The process, unless the reaper has freed it.
    pub process: Option<Arc<Process>>,
}

/// The process with the lowest number from `id` on.
pub fn at_or_after(id: ProcessId) -> Option<Entry> {
    let table = TABLE.lock();
    let (&id, record) = table.records.at_or_after(&id)?;
    Some(Entry { id, parent: table.parent(id), process: record.process.clone() })
}

/// The number of the process that was started last.
pub fn last() -> ProcessId {
    TABLE.lock().next - 1
}

/// Number of processes that have not been waited for.
pub fn count() -> usize {
    TABLE.lock().records.len()
}

/// Drops the table's reference to a process that is being freed.
pub(super) fn forget(id: ProcessId) {
    let process = TABLE.lock().records.get_mut(&id).and_then(|record| record.process.take());
    drop(process);
}

/// Records what a process has used, with its children, when no hart uses it any more.
pub(super) fn record_use(process: &Process) {
    if let Some(record) = TABLE.lock().records.get_mut(&process.id) {
        record.used_ticks = process.account.used_ticks() + process.account.children_ticks();
    }
}

/// Number of children that one portion of [`orphan_some`] separates from their parent, unless it
/// has to examine a group.
const PORTION_CHILDREN: usize = 4;

/// Makes orphans of some children of a process that has ended. Returns whether there are more.
/// Orphans that have already ended are removed, because no process can wait for them. `orphaned`
/// becomes a group that is orphaned by that and has a stopped member.
pub(super) fn orphan_some(id: ProcessId, orphaned: &mut Option<ProcessId>) -> bool {
    let table = &mut *TABLE.lock();
    for _ in 0..PORTION_CHILDREN {
        let Some(child) = table.kin.first_child(id) else { return false };
        match table.records.get(&child) {
            Some(record) if record.status.is_none() => {
                if let Some(process) = &record.process {
                    process.parent.store(0, Relaxed);
                }
                let had_shell = table.kin.has_shell(child);
                table.kin.orphan(child);
                let group = table.kin.get(child).map_or(0, |kinship| kinship.group);
                if had_shell {
                    *orphaned = table.needs_help(group).then_some(group);
                    // To examine one group is a portion.
                    return true;
                }
            }
            _ => table.remove(child),
        }
    }
    true
}

/// Number of members of a group that are examined to find out whether it is orphaned, or has a
/// stopped member. They are the first ones, which a shell has started.
const MEMBERS_EXAMINED: usize = 32;

impl Table {
    /// Whether `group` is orphaned and has a stopped member, which no process would make go on.
    fn needs_help(&self, group: ProcessId) -> bool {
        let mut from = 0;
        let members = core::iter::from_fn(|| {
            let member = self.kin.member_from(group, from)?;
            from = member + 1;
            Some(member)
        });
        let is_stopped = |member| {
            let record = self.records.get(&member);
            record.and_then(|record| record.process.as_ref()).is_some_and(|one| one.is_stopped())
        };
        members.take(MEMBERS_EXAMINED).any(is_stopped)
            && self.kin.is_orphaned(group, MEMBERS_EXAMINED)
    }
}

/// Whether no process could make a stopped member of `group` go on: see [`Kin::is_orphaned`].
pub fn is_orphaned(group: ProcessId) -> bool {
    TABLE.lock().kin.is_orphaned(group, MEMBERS_EXAMINED)
}

/// Whether `group`, of which a member has ended, is orphaned and has a stopped member.
pub(super) fn needs_help(group: ProcessId) -> bool {
    TABLE.lock().needs_help(group)
}

/// Whether the parent of a process can make its group go on: the group may be orphaned when the
/// process ends.
pub(super) fn has_shell(id: ProcessId) -> bool {
    TABLE.lock().kin.has_shell(id)
}

/// Records for the parent how a process ended. It is freed, and its children are orphans already.
pub(super) fn ended(id: ProcessId, status: WaitStatus) {
    let parent = record_end(id, status);
    if let Some(parent) = parent {
        let (code, status) = match status {
            WaitStatus::Exited(code) => (signal_code::CHILD_EXITED, code as u8),
            WaitStatus::Signalled(by) => (signal_code::CHILD_KILLED, by),
        };
        tell(&parent, id, code, status.into());
    }
}

/// Sends the parent the signal about news of child `id` that are in the table, and wakes the calls
/// that wait for them.
///
/// The signal goes first: a program that has waited for a child finds its `SIGCHLD` delivered or
/// pending. Until then [`learn`] keeps the news back.
fn tell(parent: &Arc<Process>, id: ProcessId, code: i32, status: i32) {
    parent.signal_about_child(id, code, status);
    TABLE.lock().kin.signal_is_sent(id);
    parent.child_ended.wake_all();
}

/// The part of [`ended`] that changes the table. Returns the parent.
fn record_end(id: ProcessId, status: WaitStatus) -> Option<Arc<Process>> {
    let table = &mut *TABLE.lock();
    table.records.get_mut(&id)?.status = Some(status);
    table.kin.set_news(id, Some(News::Ended));
    let parent = table.process(table.parent(id));
    if parent.is_some() {
        table.kin.signal_is_due(id);
    } else if id != FIRST_PROCESS {
        table.remove(id);
    }
    parent
}

/// Process `id` is stopped, by this signal: informs the parent.
pub(super) fn report_stopped(id: ProcessId, signal: u8) {
    report(id, News::Stopped, signal_code::CHILD_STOPPED, Some(signal));
}

/// Process `id` goes on: informs the parent.
pub(super) fn report_continued(id: ProcessId) {
    report(id, News::Continued, signal_code::CHILD_CONTINUED, None);
}

fn report(id: ProcessId, news: News, code: i32, signal: Option<u8>) {
    let mut guard = TABLE.lock();
    let table = &mut *guard;
    let parent = table.process(table.parent(id));
    let Some(record) = table.records.get_mut(&id) else { return };
    // Another hart may have changed that since, and reported it already.
    if record.process.as_ref().is_none_or(|process| process.is_stopped() != signal.is_some()) {
        return;
    }
    record.stopped_by = signal.unwrap_or(record.stopped_by);
    table.kin.set_news(id, Some(news));
    if parent.is_some() {
        table.kin.signal_is_due(id);
    }
    drop(guard);
    if let Some(parent) = parent {
        tell(&parent, id, code, signal.unwrap_or(native::SIGCONT).into());
    }
}

/// What a parent learns by waiting.
pub struct Learned {
    /// The child.
    pub id: ProcessId,
    /// What has happened.
    pub what: Happened,
    /// Ticks that it has used, with its children, if it has ended.
    pub used_ticks: u64,
}

/// What has happened to a child.
pub enum Happened {
    /// It has ended.
    Ended(WaitStatus),
    /// This signal has stopped it.
    Stopped(u8),
    /// It goes on.
    Continued,
}

/// Tells `parent` about a child with news of a kind in `wanted`; it is not told a second time
/// unless `keeps`. A child that has ended leaves the table. `early`: also news about which a signal
/// is due; otherwise the waiters are woken when it is sent.
///
/// # Errors
/// `ECHILD` if there is no such child.
pub fn learn(
    parent: ProcessId,
    which: Which,
    wanted: u8,
    keeps: bool,
    early: bool,
) -> Result<Found<Learned>, Errno> {
    let mut table = TABLE.lock();
    let (id, news) = match table.kin.find_news(parent, which, wanted, early)? {
        Found::News(news) => news,
        Found::SignalDue => return Ok(Found::SignalDue),
        Found::Nothing => return Ok(Found::Nothing),
    };
    let record = table.records.get(&id).ok_or(Errno::ECHILD)?;
    let used_ticks = record.used_ticks;
    let what = match news {
        News::Ended => Happened::Ended(record.status.ok_or(Errno::ECHILD)?),
        News::Stopped => Happened::Stopped(record.stopped_by),
        News::Continued => Happened::Continued,
    };
    match news {
        _ if keeps => {}
        News::Ended => {
            table.remove(id);
            if let Some(parent) = table.records.get(&parent).and_then(|it| it.process.as_ref()) {
                parent.account.add_children_ticks(used_ticks);
            }
        }
        News::Stopped | News::Continued => table.kin.set_news(id, None),
    }
    Ok(Found::News(Learned { id, what, used_ticks }))
}

/// The member of `group` with the lowest number from `id` on.
pub fn member_from(group: ProcessId, id: ProcessId) -> Option<Entry> {
    let table = TABLE.lock();
    let id = table.kin.member_from(group, id)?;
    Some(Entry { id, parent: table.parent(id), process: table.process(id) })
}

/// What is known of the kin of process `id`, also when it has ended.
///
/// # Errors
/// `ESRCH`.
pub fn kinship(id: ProcessId) -> Result<Kinship, Errno> {
    TABLE.lock().kin.get(id).copied().ok_or(Errno::ESRCH)
}

/// See [`Kin::set_group`].
///
/// # Errors
/// Those of [`Kin::set_group`].
pub fn set_group(caller: ProcessId, id: ProcessId, group: ProcessId) -> Result<(), Errno> {
    let mut table = TABLE.lock();
    table.kin.set_group(caller, id, group)?;
    table.publish(id);
    Ok(())
}

/// The session of `group`, or of the process with this number if there is no such group.
///
/// # Errors
/// `ESRCH`.
pub fn session_of_group(group: ProcessId) -> Result<ProcessId, Errno> {
    let table = TABLE.lock();
    let of_process = || table.kin.get(group).map(|kinship| kinship.session);
    table.kin.session_of_group(group).or_else(of_process).ok_or(Errno::ESRCH)
}

/// See [`Kin::begin_session`].
///
/// # Errors
/// Those of [`Kin::begin_session`].
pub fn begin_session(id: ProcessId) -> Result<(), Errno> {
    let mut table = TABLE.lock();
    table.kin.begin_session(id)?;
    table.publish(id);
    Ok(())
}

/// Process `id` executes another program.
pub(super) fn has_executed(id: ProcessId) {
    TABLE.lock().kin.has_executed(id);
}
