//! The file's values of an id: its addresses, device and paths. The program sees them in the id.

use transom_abi::*;

use crate::address;
use crate::id::Id;
use crate::wrong::Wrong;

/// The paths of an answer. No fabric gives more than these.
#[repr(C)]
#[derive(Default)]
struct Paths {
    head: rdma_ucm_query_path_resp,
    paths: [Path; 6],
}

/// An [`ib_path_rec_data`]. Its last part is a path record.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Path {
    flags: u32,
    reserved: u32,
    record: ibv_path_record,
}

const _: () = assert!(size_of::<Path>() == size_of::<ib_path_rec_data>());

fn ask<A: Default>(id: &Id, option: u32) -> Result<A, Wrong> {
    let query = |response| rdma_ucm_query { response, id: id.handle, option };
    id.file()?.ask(RDMA_USER_CM_CMD_QUERY, query)
}

/// Updates the addresses and the device that the program sees.
pub(crate) fn addresses(id: &Id) -> Result<(), Wrong> {
    let found: rdma_ucm_query_addr_resp = ask(id, RDMA_USER_CM_QUERY_ADDR)?;
    let gids: rdma_ucm_query_addr_resp = ask(id, RDMA_USER_CM_QUERY_GID)?;
    if found.node_guid != 0 {
        let device = id.provider.device(found.node_guid, found.ibdev_index)?;
        id.bind_to(device, found.port_num)?;
    }
    id.change(|seen| {
        let addr = &mut seen.route.addr;
        if found.src_size > 0 {
            addr.src.src_storage = found.src_addr;
        }
        if found.dst_size > 0 {
            addr.dst.dst_storage = found.dst_addr;
        }
        let gid = |address| ibv_gid { raw: address::gid(address).unwrap_or_default() };
        let (sgid, dgid) = (gid(&gids.src_addr), gid(&gids.dst_addr));
        addr.addr.ibaddr = rdma_ib_addr { sgid, dgid, pkey: gids.pkey };
    });
    Ok(())
}

/// Updates the paths that the program sees.
pub(crate) fn paths(id: &Id) -> Result<(), Wrong> {
    let found: Paths = ask(id, RDMA_USER_CM_QUERY_PATH)?;
    let count = usize::try_from(found.head.num_paths).unwrap_or(usize::MAX);
    id.show_paths(found.paths.iter().take(count).map(|path| record(&path.record)).collect());
    Ok(())
}

/// The first path, if there is one.
pub(crate) fn first_path(id: &Id) -> Result<Option<ibv_path_data>, Wrong> {
    let found: Paths = ask(id, RDMA_USER_CM_QUERY_PATH)?;
    let Path { flags, reserved, record } = found.paths[0];
    let path = ibv_path_data { flags, reserved, path: record };
    Ok((found.head.num_paths > 0).then_some(path))
}

/// A path record in the form for programs.
fn record(from: &ibv_path_record) -> ibv_sa_path_rec {
    let flow_and_hops = u32::from_be(from.flowlabel_hoplimit);
    ibv_sa_path_rec {
        dgid: from.dgid,
        sgid: from.sgid,
        dlid: from.dlid,
        slid: from.slid,
        raw_traffic: 0,
        flow_label: (flow_and_hops >> 8 & 0xF_FFFF).to_be(),
        hop_limit: flow_and_hops as u8,
        traffic_class: from.tclass,
        reversible: (from.reversible_numpath >> 7).into(),
        numb_path: from.reversible_numpath & 0x7F,
        pkey: from.pkey,
        sl: (u16::from_be(from.qosclass_sl) & 0xF) as u8,
        mtu_selector: from.mtu >> 6,
        mtu: from.mtu & 0x3F,
        rate_selector: from.rate >> 6,
        rate: from.rate & 0x3F,
        packet_life_time_selector: from.packetlifetime >> 6,
        packet_life_time: from.packetlifetime & 0x3F,
        preference: from.preference,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_record_is_read_field_by_field() {
        let packed = ibv_path_record {
            flowlabel_hoplimit: (0xABCDE << 8 | 64_u32).to_be(),
            reversible_numpath: 0x81,
            qosclass_sl: 0x0013_u16.to_be(),
            mtu: 0x83,
            rate: 0x80,
            packetlifetime: 0x90,
            ..Default::default()
        };
        let path = record(&packed);
        assert_eq!((u32::from_be(path.flow_label), path.hop_limit), (0xABCDE, 64));
        assert_eq!((path.reversible, path.numb_path, path.sl), (1, 1, 3));
        assert_eq!((path.mtu_selector, path.mtu), (2, 3));
        assert_eq!((path.rate_selector, path.rate), (2, 0));
        assert_eq!((path.packet_life_time_selector, path.packet_life_time), (2, 16));
    }
}
