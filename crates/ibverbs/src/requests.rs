//! The elements of a list of work requests, for those who look at it before it is posted.
//!
//! By mistake a list may lead back to itself. A post of it ends when the queue is full. A look at it ends when it comes
//! to an element again.

use transom_abi::{ibv_recv_wr, ibv_send_wr};

/// A work request that may lead to another.
pub(crate) trait Linked: Copy {
    /// The next one of its list. Null for none.
    fn next(&self) -> *mut Self;
    /// The same in a list where another one is next.
    fn before(self, next: *mut Self) -> Self;
}

impl Linked for ibv_send_wr {
    fn next(&self) -> *mut Self {
        self.next
    }

    fn before(self, next: *mut Self) -> Self {
        Self { next, ..self }
    }
}

impl Linked for ibv_recv_wr {
    fn next(&self) -> *mut Self {
        self.next
    }

    fn before(self, next: *mut Self) -> Self {
        Self { next, ..self }
    }
}

/// Each element of a list. Some of those of a list that leads back to itself come up to three times.
pub(crate) struct Requests<T> {
    next: *mut T,
    /// If the list comes here again, it leads back to itself. By Brent's algorithm this is put to the present element
    /// after 1, 2, 4, … steps.
    mark: *mut T,
    steps: usize,
    stride: usize,
}

impl<T: Linked> Requests<T> {
    /// Those of a list.
    ///
    /// # Safety
    /// The list is readable as long as this is used.
    pub(crate) unsafe fn of(list: *mut T) -> Self {
        Self { next: list, mark: std::ptr::null_mut(), steps: 0, stride: 1 }
    }
}

impl<T: Linked> Iterator for Requests<T> {
    type Item = *mut T;

    fn next(&mut self) -> Option<*mut T> {
        let at = self.next;
        if at.is_null() || at == self.mark {
            return None;
        }
        self.steps += 1;
        if self.steps == self.stride {
            (self.mark, self.steps, self.stride) = (at, 0, 2 * self.stride);
        }
        // SAFETY: the list is readable, by the contract of `of`.
        self.next = unsafe { &*at }.next();
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_comes_and_a_list_that_leads_back_to_itself_ends() {
        for length in 1..40_usize {
            // The last one leads to this one, or nowhere.
            for back in (0..length).map(Some).chain([None]) {
                let mut all: Vec<ibv_recv_wr> = (0..length).map(|_| Default::default()).collect();
                let at = all.as_mut_ptr();
                for (nth, wr) in all.iter_mut().enumerate() {
                    let next = if nth + 1 < length { Some(nth + 1) } else { back };
                    wr.next = next.map_or(std::ptr::null_mut(), |next| at.wrapping_add(next));
                }
                // SAFETY: the elements are this test's own.
                let come: Vec<_> = unsafe { Requests::of(at) }.collect();
                let in_order = (0..length).map(|nth| at.wrapping_add(nth));
                assert!(in_order.eq(come.iter().copied().take(length)), "{length} {back:?}");
                match back {
                    None => assert_eq!(come.len(), length),
                    Some(_) => {
                        assert!(come.len() <= 3 * length, "{length} {back:?}: {}", come.len())
                    }
                }
            }
        }
    }
}
