//! Ceph's messenger over RDMA (`ms_type = async+rdma`): a monitor, and a client that asks for its state.

use std::fs;
use std::process::Command;

use transom_conformance::programs::{Running, installed};
use transom_conformance::spaces::Side;

use super::{Across, LIMIT, row};
use crate::installation::DEVICE;
use crate::table::{Report, Verdict};

/// The TCP port on which it listens. The TCP connections set up those of RDMA.
const PORT: u16 = 6789;
const CLUSTER: &str = "8b2f3f6c-0b3a-4a5f-9d0e-5f1c1e6d7a01";

pub(super) fn add(across: &Across<'_>, report: &mut Report) {
    let verdict = Verdict::of(meet(across).err());
    report.add(row("ceph -s and ceph-mon", "ms_type = async+rdma", verdict, ""));
}

fn meet(across: &Across<'_>) -> Result<(), String> {
    let folder = across.installation.folder().join("ceph");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let (configuration, map) = (folder.join("ceph.conf"), folder.join("map"));
    let address = format!("v1:{}:{PORT}", across.address(Side::Far));
    // It stores very little, so an almost full disk is enough.
    let text = format!(
        "[global]\n\
         fsid = {CLUSTER}\n\
         mon_host = {address}\n\
         auth_cluster_required = none\n\
         auth_service_required = none\n\
         auth_client_required = none\n\
         ms_type = async+rdma\n\
         ms_async_rdma_device_name = {DEVICE}\n\
         ms_async_rdma_receive_buffers = 8192\n\
         ms_bind_msgr2 = false\n\
         admin_socket = {folder}/$name.socket\n\
         log_file = {folder}/$name.log\n\
         run_dir = {folder}\n\
         mon_data_avail_crit = 1\n\
         mon_data = {folder}/data\n\
         [mon.a]\n\
         public_addr = {address}\n",
        folder = folder.display()
    );
    fs::write(&configuration, text).map_err(|error| format!("ceph.conf: {error}"))?;
    let mut make = Command::new(installed("monmaptool", "ceph-common")?);
    make.args(["--create", "--clobber", "--fsid", CLUSTER, "--addv", "a", &address]).arg(&map);
    Running::start(&mut make).success(LIMIT)?;
    let program = installed("ceph-mon", "ceph-mon")?;
    let mut make = Command::new(&program);
    make.arg("-c").arg(&configuration).args(["--mkfs", "-i", "a", "--monmap"]).arg(&map);
    Running::start(&mut make).success(LIMIT)?;

    let mut monitor = across.command(Side::Far, &program);
    let mut monitor =
        Running::start(monitor.arg("-c").arg(&configuration).args(["-i", "a", "--foreground"]));
    monitor.wait_until_it_listens(PORT)?;
    let mut client = across.command(Side::Near, &installed("ceph", "ceph-common")?);
    client.arg("-c").arg(&configuration).args(["--connect-timeout", "30", "-s"]);
    let printed = Running::start(&mut client).success(LIMIT)?;
    if printed.output.contains("quorum a") { Ok(()) } else { Err(format!("{printed:?}")) }
}
