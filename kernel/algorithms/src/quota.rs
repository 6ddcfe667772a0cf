//! Quotas of process families, and the tree of descent: pure arithmetic.
//!
//! A *family* is a process with all its descendants. Every family has a node. Its usage is what the
//! process itself has charged plus the usage of its child families, so a charge is added to every
//! node on the path up to the root, the family of the first process. The path has at most
//! [`DEPTH_MAX`] nodes.
//!
//! A charge of `n` to family F with parent family P is allowed if on every node of the path
//!
//! 1. `used(F) + n <= limit(F)`, and
//! 2. `used(F) + n <= max(floor(P), pool(P) - used(P) - n)`, where `floor(P) = limit(P) / 64` and
//!    `pool(P) = limit(P) * 3/4`.
//!
//! The limit of a new family is half of its parent's. Rule 2 is the dynamic threshold known from
//! packet buffers: a family may grow as long as it uses no more than what its parent has left. So
//! one greedy family gets at most 3/8 of what its parent may use, a second one half of the rest,
//! and so on. The last quarter is reserved for families below the floor:
//!
//! **Proposition.** Let P itself use nothing and have at most 16 child families. Then each of them
//! can use `floor(P)`, whatever the others have taken, as far as P's own ancestors allow it.
//!
//! *Proof.* While `used(P) >= pool(P)`, only families below their floor grow, and none of them
//! beyond it: together by at most `16 * limit(P) / 64`, the quarter that `pool(P)` leaves. So rule
//! 1 never refuses them. Forced charges ([`Tree::charge_forced`]) count as usage and weaken this by
//! their amount.
//!
//! The node of a process that has ended remains until its charges are released and its descendants
//! are gone. A node without a process, without charges of its own and with a single child is
//! removed, and its child takes its place and its limits where these are lower. So there are at
//! most twice as many nodes as processes and remaining charges, and a chain of processes that each
//! start one and end does not lengthen the path.

use crate::only_child::Children;

mod amounts;
mod nodes;

pub use amounts::{Amounts, KINDS, Kind};
use nodes::Nodes;

/// Maximum number of nodes on a path to the root.
pub const DEPTH_MAX: usize = 32;

/// A family can always have this fraction of its parent's limit: 1 / `FLOOR_DIVISOR`.
pub const FLOOR_DIVISOR: u64 = 64;

/// Number of child families for which the floor is guaranteed.
pub const GUARANTEED_FAMILIES: u64 = FLOOR_DIVISOR / 4;

/// Identifies a family: the index of its node, and a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    index: u32,
    life: u32,
}

impl Family {
    /// The family of the first process.
    pub const ROOT: Self = Self { index: 0, life: 1 };

    /// The family as numbers.
    #[must_use]
    pub const fn numbers(self) -> [u32; 2] {
        [self.index, self.life]
    }

    /// The family with these [`Self::numbers`].
    #[must_use]
    pub const fn of_numbers([index, life]: [u32; 2]) -> Self {
        Self { index, life }
    }
}

/// The reason why a family was not created or a charge was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A limit of this kind would be exceeded.
    Over(Kind),
    /// The path would be too long.
    TooDeep,
    /// The family is gone.
    Gone,
    /// There is no memory for its node.
    NoMemory,
}

#[derive(Clone, Debug)]
struct Node {
    life: u32,
    /// Index of the parent's node. The root has its own.
    parent: u32,
    /// By index.
    children: Children,
    /// The process lives, or has not been waited for.
    has_process: bool,
    /// The number of the process, if it was told.
    head: u32,
    limit: Amounts,
    used: Amounts,
}

impl Node {
    /// That of a process that has no children and holds nothing.
    fn new(parent: u32, limit: Amounts) -> Self {
        let used = Amounts::default();
        Self { life: 0, parent, children: Children::NONE, has_process: true, head: 0, limit, used }
    }
}

/// Memory for the node of a family.
pub const NODE_BYTES: u64 = Nodes::NODE_BYTES;

/// All families.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub struct Tree {
    nodes: Nodes,
}

impl Tree {
    /// A tree without nodes.
    #[must_use]
    pub const fn new() -> Self {
        Self { nodes: Nodes::new() }
    }

    /// Creates the root, or changes its limits.
    ///
    /// # Errors
    /// [`Refusal::NoMemory`].
    pub fn set_root(&mut self, limit: Amounts) -> Result<(), Refusal> {
        match self.nodes.get_mut(0) {
            Some(root) => root.limit = limit,
            None => {
                self.nodes.insert(Node::new(0, limit)).map_err(|_| Refusal::NoMemory)?;
            }
        }
        Ok(())
    }

    /// Creates a child family of `parent`, with half of its limits.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn add(&mut self, parent: Family) -> Result<Family, Refusal> {
        let above = self.node(parent).ok_or(Refusal::Gone)?;
        let limit = Amounts(above.limit.0.map(|limit| limit.div_ceil(2)));
        if self.path(parent.index).count() >= DEPTH_MAX {
            return Err(Refusal::TooDeep);
        }
        let parent = parent.index;
        let index = self.nodes.insert(Node::new(parent, limit)).map_err(|_| Refusal::NoMemory)?;
        self.nodes[parent].children.add(index);
        Ok(Family { index, life: self.nodes[index].life })
    }

    /// Sets the number of the process that is the head of `family`, for [`Self::heads`].
    pub fn set_head(&mut self, family: Family, process: u32) {
        if self.node(family).is_some() {
            self.nodes[family.index].head = process;
        }
    }

    /// The process numbers of the head of `family` and of the heads of the families above it, the
    /// nearest first; 0 for a process that is gone.
    #[must_use]
    pub fn heads(&self, family: Family) -> [u32; DEPTH_MAX] {
        let mut heads = [0; DEPTH_MAX];
        if self.node(family).is_some() {
            for (place, index) in heads.iter_mut().zip(self.path(family.index)) {
                let node = &self.nodes[index];
                *place = if node.has_process { node.head } else { 0 };
            }
        }
        heads
    }

    /// The process of `family` has ended and been waited for. The family remains until its charges
    /// and descendants are gone too.
    pub fn process_gone(&mut self, family: Family) {
        if family != Family::ROOT && self.node(family).is_some() {
            self.nodes[family.index].has_process = false;
            self.prune(family.index);
        }
    }

    /// Charges `amounts` to `family` and all its ancestors.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn charge(&mut self, family: Family, amounts: &Amounts) -> Result<(), Refusal> {
        self.node(family).ok_or(Refusal::Gone)?;
        for index in self.path(family.index) {
            let node = &self.nodes[index];
            let parent = (index != node.parent).then(|| &self.nodes[node.parent]);
            for (kind, &more) in amounts.0.iter().enumerate() {
                let refused = Err(Refusal::Over(Kind::ALL[kind]));
                if more == 0 {
                    continue;
                }
                let Some(sum) = node.used.0[kind].checked_add(more) else { return refused };
                if sum > node.limit.0[kind] {
                    return refused;
                }
                let Some(parent) = parent else { continue };
                let limit = parent.limit.0[kind];
                let left =
                    (limit - limit / 4).saturating_sub(parent.used.0[kind].saturating_add(more));
                if sum > left.max(limit / FLOOR_DIVISOR) {
                    return refused;
                }
            }
        }
        self.change_path(family.index, |used| used.add(amounts));
        Ok(())
    }

    /// Like [`Tree::charge`], but ignores the limits: for allocations that can no longer fail.
    ///
    /// # Errors
    /// [`Refusal::Gone`].
    pub fn charge_forced(&mut self, family: Family, amounts: &Amounts) -> Result<(), Refusal> {
        self.node(family).ok_or(Refusal::Gone)?;
        self.change_path(family.index, |used| used.add(amounts));
        Ok(())
    }

    /// The largest amount of `kind` for which [`Tree::charge`] would succeed now.
    #[must_use]
    pub fn room(&self, family: Family, kind: Kind) -> u64 {
        if self.node(family).is_none() {
            return 0;
        }
        let on_node = |index: u32| {
            let node = &self.nodes[index];
            let used = node.used.get(kind);
            let own = node.limit.get(kind).saturating_sub(used);
            if index == node.parent {
                return own;
            }
            let parent = &self.nodes[node.parent];
            let limit = parent.limit.get(kind);
            // Rule 2 solved for the amount, which is added to the usage of both F and P.
            let left =
                (limit - limit / 4).saturating_sub(parent.used.get(kind)).saturating_sub(used) / 2;
            own.min(left.max((limit / FLOOR_DIVISOR).saturating_sub(used)))
        };
        self.path(family.index).map(on_node).min().unwrap_or(0)
    }

    /// Releases amounts that were charged to `family`.
    pub fn release(&mut self, family: Family, amounts: &Amounts) {
        if amounts.is_zero() || self.node(family).is_none() {
            return;
        }
        self.change_path(family.index, |used| used.subtract(amounts));
        self.prune(family.index);
    }

    /// Limits and usage of `family`.
    #[must_use]
    pub fn state(&self, family: Family) -> Option<(Amounts, Amounts)> {
        self.node(family).map(|node| (node.limit, node.used))
    }

    /// Sets the limit of `family` for one kind, at most to its parent's. Current usage is not
    /// affected.
    ///
    /// Returns the previous limit.
    ///
    /// # Errors
    /// [`Refusal::Gone`].
    pub fn set_limit(&mut self, family: Family, kind: Kind, limit: u64) -> Result<u64, Refusal> {
        let parent = self.node(family).ok_or(Refusal::Gone)?.parent;
        let most =
            if family == Family::ROOT { u64::MAX } else { self.nodes[parent].limit.get(kind) };
        let place = &mut self.nodes[family.index].limit.0[kind as usize];
        Ok(core::mem::replace(place, limit.min(most)))
    }

    /// Lowers the limit of `family` for one kind: what its head may do itself. The comparison and
    /// the change are one operation, so a limit that an ancestor has lowered since the head last
    /// read it stays.
    ///
    /// Returns the previous limit.
    ///
    /// # Errors
    /// [`Refusal::Gone`]; [`Refusal::Over`] if `limit` is above the current one.
    pub fn lower_limit(&mut self, family: Family, kind: Kind, limit: u64) -> Result<u64, Refusal> {
        if limit > self.node(family).ok_or(Refusal::Gone)?.limit.get(kind) {
            return Err(Refusal::Over(kind));
        }
        self.set_limit(family, kind, limit)
    }

    /// Whether `family` is `ancestor` or one of its descendants.
    #[must_use]
    pub fn is_within(&self, family: Family, ancestor: Family) -> bool {
        self.node(family).is_some()
            && self.node(ancestor).is_some()
            && self.path(family.index).any(|index| index == ancestor.index)
    }

    /// Number of nodes in use, for tests and statistics.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the tree has no root.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 0
    }

    fn node(&self, family: Family) -> Option<&Node> {
        self.nodes.get(family.index).filter(|node| node.life == family.life)
    }

    /// The indices of a node and all its ancestors.
    fn path(&self, index: u32) -> impl Iterator<Item = u32> + '_ {
        core::iter::successors(Some(index), |&at| {
            let parent = self.nodes[at].parent;
            (parent != at).then_some(parent)
        })
    }

    /// Changes the usage of a node and all its ancestors.
    fn change_path(&mut self, index: u32, change: impl Fn(&mut Amounts)) {
        let mut at = index;
        loop {
            let node = &mut self.nodes[at];
            change(&mut node.used);
            if node.parent == at {
                break;
            }
            at = node.parent;
        }
    }

    /// Frees node `index` if it is no longer needed, then examines its parent likewise. Removes a
    /// node that only leads to a single child.
    fn prune(&mut self, index: u32) {
        let mut at = index;
        loop {
            let node = &self.nodes[at];
            let parent = node.parent;
            if parent == at || node.has_process {
                return;
            }
            if node.children == Children::NONE && node.used.is_zero() {
                self.nodes.remove(at);
                self.nodes[parent].children.remove(at);
            } else if let Some(heir) = node.children.only() {
                self.cut_out(at, heir);
            } else {
                return;
            }
            at = parent;
        }
    }

    /// Removes `index`, which has the single child `heir`, if nothing is charged to it directly.
    fn cut_out(&mut self, index: u32, heir: u32) {
        let (parent, limit, used) = {
            let node = &self.nodes[index];
            (node.parent, node.limit, node.used)
        };
        let child = &mut self.nodes[heir];
        if child.used != used {
            return;
        }
        child.parent = parent;
        for (mine, above) in child.limit.0.iter_mut().zip(limit.0) {
            *mine = (*mine).min(above);
        }
        self.nodes[parent].children.replace(index, heir);
        self.nodes.remove(index);
    }
}

#[cfg(test)]
#[path = "quota_tests.rs"]
mod tests;
