//! The GID table as programs see it. Its entries are the addresses of the port, in their order, all of RoCE v2. As
//! another adapter (`transom rehearse --as`) it may have another length, and each address may stand in it twice: for
//! RoCE v1, and then for RoCE v2. Either leads to the same address, because nothing here speaks RoCE v1.

use transom_abi::*;
use transom_rehearse::profile::Gids;
use transom_system::addresses::{Address, Addresses, GID_TABLE};
use transom_system::rehearsal;

/// The shape of the table.
#[derive(Clone, Copy)]
struct Shape {
    /// How many entries each address has.
    versions: usize,
    /// How many entries there are.
    length: usize,
}

impl Shape {
    fn of(gids: Option<Gids>) -> Self {
        let versions = if gids.is_some_and(|it| it.both_versions) { 2 } else { 1 };
        let most = gids.and_then(|it| it.most).map_or(usize::MAX, usize::from);
        Self { versions, length: (GID_TABLE * versions).min(most) }
    }

    fn now() -> Self {
        Self::of(rehearsal::profile().map(|profile| profile.gids))
    }

    /// The place of the address that an entry is of, and the type of the entry.
    fn entry(self, index: usize) -> Option<(usize, ibv_gid_type)> {
        let is_last = index % self.versions == self.versions - 1;
        let kind = if is_last { IBV_GID_TYPE_ROCE_V2 } else { IBV_GID_TYPE_ROCE_V1 };
        (index < self.length).then(|| (index / self.versions, kind))
    }

    fn index_of(self, place: usize) -> usize {
        (place + 1) * self.versions - 1
    }
}

/// How many entries the table has.
pub(crate) fn length() -> usize {
    Shape::now().length
}

/// How many entries of the table have been used.
pub(crate) fn used(addresses: &Addresses) -> usize {
    let shape = Shape::now();
    (addresses.table().len() * shape.versions).min(shape.length)
}

/// The place of the address that an entry is of. `None` past the end of the table.
pub(crate) fn place(index: usize) -> Option<usize> {
    Some(Shape::now().entry(index)?.0)
}

/// The entry at an index: its address and its type.
pub(crate) fn entry(addresses: &Addresses, index: usize) -> Option<(&Address, ibv_gid_type)> {
    let (place, kind) = Shape::now().entry(index)?;
    Some((addresses.get(place)?, kind))
}

/// The index of the entry of RoCE v2 that is of the address at a place.
pub(crate) fn index_of(place: usize) -> usize {
    Shape::now().index_of(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule: REH-51
    #[test]
    fn the_index_of_an_address_leads_back_to_it_and_says_roce_v2() {
        let both = Gids { both_versions: true, most: None };
        for (gids, length) in [(None, GID_TABLE), (Some(both), 2 * GID_TABLE)] {
            let shape = Shape::of(gids);
            assert_eq!(shape.length, length);
            for place in 0..GID_TABLE {
                let found = shape.entry(shape.index_of(place));
                assert_eq!(found, Some((place, IBV_GID_TYPE_ROCE_V2)));
            }
            assert_eq!(shape.entry(length), None);
        }
        assert_eq!(Shape::of(Some(both)).entry(6), Some((3, IBV_GID_TYPE_ROCE_V1)));
        let few = Shape::of(Some(Gids { both_versions: false, most: Some(1) }));
        assert_eq!([0, 1].map(|it| few.entry(it).is_some()), [true, false]);
    }
}
