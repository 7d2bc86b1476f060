//! The headers that programs and peers put into messages: the GRH area, those of tag matching, and
//! the syndrome of an AETH.

use transom_wire::Syndrome;
use transom_wire::grh::{GRH_BYTES, Route};
use transom_wire::tmh::{RVH_BYTES, RendezvousHeader, TMH_BYTES, TagHeader};

/// Takes any bytes for each of the headers.
pub fn headers(bytes: &[u8]) {
    if let Some(area) = bytes.first_chunk::<GRH_BYTES>()
        && let Some(route) = Route::read(area)
    {
        assert_eq!(Route::read(&route.write(0)), Some(route));
    }
    if let Some(header) = bytes.first_chunk::<TMH_BYTES>().and_then(TagHeader::read) {
        assert_eq!(TagHeader::read(&header.write()), Some(header));
    }
    if let Some(header) = bytes.first_chunk::<RVH_BYTES>() {
        RendezvousHeader::read(header);
    }
    if let Some(syndrome) = bytes.first().copied().and_then(Syndrome::from_byte) {
        assert_eq!(Some(syndrome.to_byte()), bytes.first().copied());
    }
}
