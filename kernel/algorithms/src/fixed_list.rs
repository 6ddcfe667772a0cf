//! A list with a fixed capacity, for what must be stored before there is a heap.

/// Up to `N` values. [`FixedList::push`] drops a value that does not fit and returns false.
#[derive(Debug)]
pub struct FixedList<T, const N: usize> {
    values: [T; N],
    count: usize,
}

impl<T: Clone, const N: usize> FixedList<T, N> {
    /// An empty list. `filler` initialises the unused places and is never returned.
    pub fn new(filler: T) -> Self {
        Self { values: core::array::from_fn(|_| filler.clone()), count: 0 }
    }

    /// The same in a constant, for types that are `Copy`.
    pub const fn of_copies(filler: T) -> Self
    where
        T: Copy,
    {
        Self { values: [filler; N], count: 0 }
    }

    /// Appends `value`. Returns false if the list is full.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_list_takes_no_more() {
        let mut list = FixedList::<_, 2>::new(9);
        assert!(list.is_empty() && list.push(1) && list.push(2) && !list.push(3));
        assert_eq!(*list, [1, 2]);
    }
}
