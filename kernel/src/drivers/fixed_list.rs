//! A list with a fixed capacity, for what must be known before there is a heap.

/// Up to `N` values. What does not fit is dropped, and [`FixedList::push`] says so.
pub struct FixedList<T, const N: usize> {
    values: [T; N],
    count: usize,
}

impl<T: Clone, const N: usize> FixedList<T, N> {
    /// An empty list; `filler` is never seen.
    pub fn new(filler: T) -> Self {
        Self { values: core::array::from_fn(|_| filler.clone()), count: 0 }
    }

    /// Appends `value`; false if the list is full.
    pub fn push(&mut self, value: T) -> bool {
        let Some(place) = self.values.get_mut(self.count) else { return false };
        *place = value;
        self.count += 1;
        true
    }
}

impl<T, const N: usize> core::ops::Deref for FixedList<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values[..self.count]
    }
}
