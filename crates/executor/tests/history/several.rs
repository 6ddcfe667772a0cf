//! The model of several workers. It does not know which coroutine waits where, so not which one of
//! a level is next; but it knows the level: the most urgent at which anything is ready.
//!
//! All is done by one thread, so no worker is ever in the middle of a scheduling point, and the
//! proposition of the crate's documentation comes to this: no poll begins while anything more
//! urgent is ready.

use super::model::{Model, Modelled, Phase};

#[derive(Default)]
pub struct Several {
    coroutines: Vec<Modelled>,
}

impl Model for Several {
    fn all(&self) -> &[Modelled] {
        &self.coroutines
    }

    fn one(&mut self, key: usize) -> &mut Modelled {
        &mut self.coroutines[key]
    }

    fn add(&mut self, id: u64, priority: u8) {
        self.coroutines.push(Modelled::new(id, priority));
    }

    fn make_ready(&mut self, key: usize, _: bool, _: Option<usize>) {
        self.coroutines[key].phase = Phase::Ready;
    }

    fn moved(&mut self, _: usize) {}

    fn begin(&mut self, key: usize, worker: usize) {
        let one = &self.coroutines[key];
        assert_eq!(one.phase, Phase::Ready, "only what is ready is polled");
        let most_urgent = self.bitmap().trailing_zeros();
        assert_eq!(one.priority as u32, most_urgent, "worker {worker} takes the most urgent");
        self.coroutines[key].phase = Phase::Running;
    }

    fn pause(&mut self, key: usize) {
        let one = &mut self.coroutines[key];
        if !one.cancelled {
            one.phase = if std::mem::take(&mut one.woken) { Phase::Ready } else { Phase::Blocked };
        }
    }

    fn finish_run(&mut self, stalled: bool) {
        if stalled {
            assert_eq!(self.bitmap(), 0, "stalled although something is ready");
        }
    }

    fn bitmap(&self) -> u64 {
        let ready = self.coroutines.iter().filter(|one| one.phase == Phase::Ready);
        ready.fold(0, |bits, one| bits | 1 << one.priority)
    }
}
