//! The buddy allocator and the cache of frames compared with a model that stores for each frame
//! whether it is free.

use cops_algorithms::buddy::{Buddy, Links, ORDERS, order_for};
use cops_algorithms::frame_cache::{BATCH, CAPACITY, FrameCache};
use proptest::prelude::*;
use std::collections::HashSet;
use std::ops::Range;

/// Not a power of two, so that the last blocks have no buddies.
const FRAMES: usize = 300;

/// Frames that are never the allocator's.
const RESERVED: [Range<usize>; 3] = [0..5, 64..96, 201..202];

struct Tested {
    records: Vec<Links>,
    buddy: Buddy,
    /// The model: whether each frame is free.
    free: Vec<bool>,
    /// First frame and number of frames of what is allocated.
    blocks: Vec<(u32, Size)>,
}

#[derive(Clone, Copy, Debug)]
enum Size {
    Order(usize),
    Run(usize),
}

impl Size {
    fn frames(self) -> usize {
        match self {
            Self::Order(order) => 1 << order,
            Self::Run(count) => count,
        }
    }

    fn order(self) -> usize {
        match self {
            Self::Order(order) => order,
            Self::Run(count) => (0..).find(|order| 1 << order >= count).unwrap(),
        }
    }
}

impl Tested {
    fn new(frames: usize, reserved: &[Range<usize>]) -> Self {
        let records: Vec<Links> = (0..frames).map(|_| Links::in_use()).collect();
        let free: Vec<bool> =
            (0..frames).map(|at| !reserved.iter().any(|range| range.contains(&at))).collect();
        let mut buddy = Buddy::new();
        let mut at = 0;
        while at < frames {
            let end = (at..frames).find(|&end| free[end] != free[at]).unwrap_or(frames);
            if free[at] {
                buddy.free_range(&records, at as u32..end as u32);
            }
            at = end;
        }
        Self { records, buddy, free, blocks: Vec::new() }
    }

    /// Whether the model has an aligned block of this order with all frames free.
    fn has(&self, order: usize) -> bool {
        let whole = (0..self.free.len())
            .step_by(1 << order)
            .map(|start| self.free.get(start..start + (1 << order)));
        whole.flatten().any(|block| block.iter().all(|&free| free))
    }

    fn allocate(&mut self, size: Size) -> Result<bool, TestCaseError> {
        let expected = size.order() < ORDERS && self.has(size.order());
        let first = match size {
            Size::Order(order) => self.buddy.allocate(&self.records, order),
            Size::Run(count) => self.buddy.allocate_run(&self.records, count),
        };
        prop_assert_eq!(first.is_some(), expected, "{:?}", size);
        let Some(first) = first else { return Ok(false) };
        prop_assert!((first as usize).is_multiple_of(1 << size.order()), "{size:?} at {first}");
        for frame in first as usize..first as usize + size.frames() {
            prop_assert_eq!(self.free.get(frame), Some(&true), "frame {} is not free", frame);
            self.free[frame] = false;
        }
        self.blocks.push((first, size));
        Ok(true)
    }

    fn free(&mut self, index: usize) {
        let (first, size) = self.blocks.swap_remove(index);
        match size {
            Size::Order(order) => self.buddy.free(&self.records, first, order),
            Size::Run(count) => self.buddy.free_range(&self.records, first..first + count as u32),
        }
        self.free[first as usize..first as usize + size.frames()].fill(true);
    }

    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.buddy.free_frames(), self.free.iter().filter(|&&free| free).count());
        Ok(())
    }

    /// Allocates everything, the largest blocks first. That succeeds only if free buddies are
    /// joined.
    fn allocate_all(&mut self) -> Result<(), TestCaseError> {
        for order in (0..ORDERS).rev() {
            while self.allocate(Size::Order(order))? {}
        }
        prop_assert_eq!(self.buddy.free_frames(), 0);
        self.check()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(Size),
    /// Of the allocated blocks, the one with this index, modulo their number.
    Free(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = prop_oneof![
        4 => (0..9usize).prop_map(|order| Step::Allocate(Size::Order(order))),
        2 => (1..80usize).prop_map(|count| Step::Allocate(Size::Run(count))),
        5 => any::<usize>().prop_map(Step::Free),
    ];
    prop::collection::vec(one, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Blocks never overlap; an allocation fails only if no block of its order exists; everything
    /// comes back and is joined to the largest blocks.
    #[test]
    fn behaves_as_the_model(steps in steps()) {
        let mut tested = Tested::new(FRAMES, &RESERVED);
        tested.check()?;
        for step in steps {
            match step {
                Step::Allocate(size) => drop(tested.allocate(size)?),
                Step::Free(index) if !tested.blocks.is_empty() => tested.free(index % tested.blocks.len()),
                Step::Free(_) => {}
            }
            tested.check()?;
        }
        tested.allocate_all()?;
        while !tested.blocks.is_empty() {
            tested.free(0);
        }
        tested.check()?;
        tested.allocate_all()?;
    }

    /// With the cache before it, each frame is in exactly one place: free in the allocator, in the
    /// cache, or in use. Of [`BATCH`] successive calls, at most one moves a batch.
    #[test]
    fn a_cache_loses_no_frame(
        // Phases of one kind, so that batches move in both directions.
        phases in prop::collection::vec((any::<bool>(), 1..100usize), 0..40),
        frames in 1..FRAMES,
    ) {
        let records: Vec<Links> = (0..frames).map(|_| Links::in_use()).collect();
        let mut buddy = Buddy::new();
        buddy.free_range(&records, 0..frames as u32);
        let mut cache = FrameCache::EMPTY;
        let (mut used, mut cached, mut quiet_calls) = (Vec::new(), 0, BATCH);
        for take in phases.into_iter().flat_map(|(take, count)| std::iter::repeat_n(take, count)) {
            quiet_calls += 1;
            if take {
                if cache.is_empty() {
                    let moved = cache.refill(|| buddy.allocate(&records, 0));
                    prop_assert!(moved == BATCH || buddy.free_frames() == 0);
                    cached += moved;
                    prop_assert!(moved < BATCH || quiet_calls >= BATCH);
                    quiet_calls = if moved < BATCH { quiet_calls } else { 0 };
                }
                let frame = cache.take();
                prop_assert_eq!(frame.is_some(), cached > 0);
                if let Some(frame) = frame {
                    cached -= 1;
                    used.push(frame);
                }
            } else if let Some(frame) = used.pop() {
                if cache.is_full() {
                    cache.drain(|frame| buddy.free(&records, frame, 0));
                    cached -= BATCH;
                    prop_assert!(quiet_calls >= BATCH);
                    quiet_calls = 0;
                }
                cache.put(frame);
                cached += 1;
            }
            prop_assert_eq!(buddy.free_frames() + cached + used.len(), frames);
            prop_assert!(cached <= CAPACITY);
        }
        let rest = std::iter::from_fn(|| cache.take()).chain(std::iter::from_fn(|| buddy.allocate(&records, 0)));
        let all: Vec<u32> = rest.chain(used).collect();
        prop_assert_eq!(all.len(), frames);
        prop_assert_eq!(all.into_iter().collect::<HashSet<_>>().len(), frames);
    }
}

/// Blocks are joined up to the maximum order, and no further.
#[test]
fn the_largest_blocks() {
    const LARGEST: usize = 1 << (ORDERS - 1);
    let mut tested = Tested::new(3 * LARGEST + 7, &[]);
    for _ in 0..3 {
        assert!(tested.allocate(Size::Order(ORDERS - 1)).unwrap());
    }
    assert!(!tested.allocate(Size::Order(3)).unwrap());
    assert!(tested.allocate(Size::Order(2)).unwrap());
    while !tested.blocks.is_empty() {
        tested.free(0);
    }
    assert!(!tested.allocate(Size::Run(LARGEST + 1)).unwrap());
    assert!(tested.allocate(Size::Run(LARGEST - 1)).unwrap());
    tested.allocate_all().unwrap();
}

#[test]
fn orders() {
    for frames in 1..2000 {
        let order = order_for(frames);
        assert!(1 << order >= frames && (order == 0 || 1 << (order - 1) < frames), "{frames}");
    }
}
