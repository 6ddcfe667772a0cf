//! `cops_algorithms::loaded_root`: a hart that runs a program uses no translation that a flush has
//! ended.

use cops_algorithms::loaded_root::LoadedRoot;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::*, fence};
use loom::thread;

const ROOT: u64 = 7;

/// An address space of two pages, and a hart with a cache of their translations.
struct Machine {
    root: LoadedRoot,
    pages: [AtomicU64; 2],
    cached: [AtomicU64; 2],
    /// Whether the hart's cache is up to date if it loads the root now.
    is_up_to_date: AtomicU64,
}

impl Machine {
    /// The hart has the root loaded, and runs no program.
    fn new() -> Arc<Self> {
        let zeros = || [AtomicU64::new(0), AtomicU64::new(0)];
        let (root, is_up_to_date) = (LoadedRoot::new(), AtomicU64::new(1));
        root.load(ROOT);
        Arc::new(Self { root, pages: zeros(), cached: zeros(), is_up_to_date })
    }

    fn fill_cache(&self) {
        for (page, cached) in self.pages.iter().zip(&self.cached) {
            cached.fetch_max(page.load(SeqCst), SeqCst);
        }
    }

    /// The hart begins to run a program.
    fn begin(&self) {
        self.root.begin_program();
        if !self.root.is_current(ROOT) {
            self.root.load(ROOT);
            if self.is_up_to_date.swap(1, SeqCst) == 0 {
                self.fill_cache();
            }
        }
    }

    /// Another hart changes a page. On return the old translation is not in use.
    fn change(&self, page: usize) {
        self.pages[page].swap(1, SeqCst);
        fence(SeqCst);
        self.is_up_to_date.swap(0, SeqCst);
        if self.root.must_be_interrupted(ROOT) {
            self.fill_cache();
        }
    }

    /// The hart runs a program.
    fn verify(&self, pages: usize) {
        for cached in &self.cached[..pages] {
            assert_eq!(cached.load(SeqCst), 1, "an old translation is in use");
        }
    }
}

#[test]
fn a_hart_that_begins_while_pages_are_changed_uses_none_of_the_old_ones() {
    for pages in [1, 2] {
        loom::model(move || {
            let machine = Machine::new();
            let other = machine.clone();
            let changes = thread::spawn(move || (0..pages).for_each(|page| other.change(page)));
            machine.begin();
            changes.join().unwrap();
            machine.verify(pages);
        });
    }
}

#[test]
fn a_hart_that_stops_and_begins_again_uses_none_of_the_old_ones() {
    loom::model(|| {
        let machine = Machine::new();
        machine.begin();
        let other = machine.clone();
        let changes = thread::spawn(move || (0..2).for_each(|page| other.change(page)));
        machine.root.end_program();
        machine.begin();
        changes.join().unwrap();
        machine.verify(2);
    });
}

#[test]
fn two_harts_change_a_page_each_while_a_hart_begins() {
    let mut model = loom::model::Builder::new();
    // With all interleavings of three harts it would run for hours.
    model.preemption_bound = Some(2);
    model.check(|| {
        let machine = Machine::new();
        let changes = [0, 1].map(|page| {
            let other = machine.clone();
            thread::spawn(move || other.change(page))
        });
        machine.begin();
        changes.into_iter().for_each(|change| change.join().unwrap());
        machine.verify(2);
    });
}
