//! The objects that an outstanding request keeps alive.

use std::sync::Arc;

/// An object that must outlive the requests that name it: a region, a window or an address handle.
pub(crate) trait Held: Send + Sync {}

/// The objects that one request names, dropped in this order.
#[expect(dead_code, reason = "the objects are held to be dropped, not to be used")]
pub(crate) enum Keep {
    Nothing,
    One(Arc<dyn Held>),
    Two(Arc<dyn Held>, Arc<dyn Held>),
    Many(Vec<Arc<dyn Held>>),
}

impl FromIterator<Arc<dyn Held>> for Keep {
    /// Allocates only for more than two.
    fn from_iter<I: IntoIterator<Item = Arc<dyn Held>>>(objects: I) -> Self {
        let mut objects = objects.into_iter();
        match (objects.next(), objects.next(), objects.next()) {
            (None, ..) => Self::Nothing,
            (Some(first), None, _) => Self::One(first),
            (Some(first), Some(second), None) => Self::Two(first, second),
            (Some(first), Some(second), Some(third)) => {
                Self::Many([first, second, third].into_iter().chain(objects).collect())
            }
        }
    }
}
