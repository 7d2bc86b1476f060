//! What is usually meant by a key or an address that is refused.

use transom_abi::*;
use transom_conformance::explained::explained;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;

/// What is told of a WRITE of eight bytes that the peer refuses.
fn refused(it: &MemoryPair, address: u64, key: u32) -> String {
    let (qa, qb) = it.pair.another(IBV_QPT_RC);
    let mut sges = [it.near_sge(0, 8)];
    post(qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, address, key));
    it.pair.a.expect(IBV_WC_REM_ACCESS_ERR);
    let told = explained(number(qb), number(qa));
    let write = told.into_iter().find(|sentence| sentence.starts_with("WRITE of 8 bytes at"));
    write.expect("the write is told of")
}

on_each_link! {
    /// Rules: EX-01, RA-23, RA-33
    fn what_comes_in_the_other_byte_order_is_told(link: Link) {
        let it = MemoryPair::new(link, 4096);
        let told = refused(&it, it.far.addr(), it.key().swap_bytes());
        assert!(told.contains("The key is right with its bytes swapped"), "{told}");
        let told = refused(&it, it.far.addr().swap_bytes(), it.key());
        assert!(told.contains("The address is right with its bytes swapped"), "{told}");
        // What only is out of bounds is no such thing.
        let told = refused(&it, it.far.addr() + 4096, it.key());
        assert!(!told.contains("swapped"), "{told}");
    }

    /// Rules: EX-01, RA-23, RA-33
    fn what_was_not_sent_is_told(link: Link) {
        let it = MemoryPair::new(link, 4096);
        let told = refused(&it, it.far.addr(), 0);
        assert!(told.contains("the key is 0: was the rkey sent"), "{told}");
        let told = refused(&it, 0, it.key());
        assert!(told.contains(" before the start of the region ["), "{told}");
        assert!(told.contains("The address is 0: was it sent"), "{told}");
        let mut sges = [sge(it.near.addr(), 8, std::ptr::null_mut())];
        post(it.pair.qa, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
        it.pair.a.expect(IBV_WC_LOC_PROT_ERR);
        let told = explained(number(it.pair.qa), 0).concat();
        assert!(told.contains("the key is 0: was sge.lkey = mr->lkey forgotten?"), "{told}");
    }

    /// Rules: EX-01, RA-33
    fn memory_that_another_region_has_or_none_is_told_so(link: Link) {
        let it = MemoryPair::new(link, 4096);
        let other = Buffer::new(4096);
        let region = format!("The region [{:#x}, +4096)", other.addr());
        it.pair.b.reg(&other, ALL);
        let told = refused(&it, other.addr(), it.key());
        let whose = format!("{region} there has this memory: is the rkey that of another region than remote_addr?");
        assert!(told.contains(&whose), "{told}");
        let local = |is_registered: bool| {
            let it = MemoryPair::new(link, 4096);
            let other = Buffer::new(4096);
            if is_registered {
                it.pair.a.reg(&other, ALL);
            }
            let mut sges = [sge(other.addr(), 8, it.ma)];
            post(it.pair.qa, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
            it.pair.a.expect(IBV_WC_LOC_PROT_ERR);
            explained(number(it.pair.qa), 0).concat()
        };
        let told = local(false);
        assert!(told.contains("No region has this memory: register it (ibv_reg_mr), and use that"), "{told}");
        let told = local(true);
        assert!(told.contains(", +4096) has this memory: use its lkey"), "{told}");
        // Only a number that is no slip is left out.
        let far = refused(&it, it.far.addr() + (1 << 40), it.key());
        assert!(far.contains("the range is not in the region ["), "{far}");
        let near = refused(&it, it.far.addr() + 4096 + 16, it.key());
        assert!(near.contains("the range begins 16 bytes behind the end of the region ["), "{near}");
    }

    /// Rules: EX-01, RA-24
    fn of_a_key_that_was_changed_on_its_way_the_right_one_is_told(link: Link) {
        let it = MemoryPair::new(link, 4096);
        let told = refused(&it, it.far.addr(), it.key() ^ 1);
        let place = format!("in its place has {:#010x}: was the key changed on its way", it.key());
        assert!(told.contains("no region has this key. The region [") && told.contains(&place), "{told}");
    }

    /// Rules: EX-01, RA-06, RA-30
    fn a_right_that_is_missing_is_told_with_where_to_add_it(link: Link) {
        let it = MemoryPair::new(link, 4096);
        let region = |access| it.pair.b.reg(&it.far, access as i32);
        let told = refused(&it, it.far.addr(), keys(region(IBV_ACCESS_LOCAL_WRITE)).1);
        let lacks = " before, grants LOCAL_WRITE only: add IBV_ACCESS_REMOTE_WRITE to its ibv_reg_mr (rule ";
        assert!(told.contains("the region [") && told.contains(lacks), "{told}");
        // The right for peers goes with that for the device itself.
        let told = refused(&it, it.far.addr(), keys(region(IBV_ACCESS_REMOTE_READ)).1);
        let lacks = "grants REMOTE_READ only: add IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE to its";
        assert!(told.contains(lacks), "{told}");
        let told = refused(&it, it.far.addr(), keys(region(0)).1);
        assert!(told.contains(" before, grants nothing but local reading: add IBV_ACCESS_LOCAL_WRITE | "), "{told}");
        let of_pair = |access| {
            let (qa, qb) = it.connected(|_| (), |attr| attr.qp_access_flags = access);
            let mut sges = [it.near_sge(0, 8)];
            post(qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, it.far.addr(), it.key()));
            it.pair.a.expect(IBV_WC_REM_INV_REQ_ERR);
            (explained(number(qb), number(qa)).concat(), number(qb))
        };
        for (access, named) in [(0, "0"), (IBV_ACCESS_REMOTE_READ, "IBV_ACCESS_REMOTE_READ")] {
            let (told, qb) = of_pair(access);
            let lacks = format!(
                "qp_access_flags of QP {qb:#x} are {named}: add IBV_ACCESS_REMOTE_WRITE in its change to INIT"
            );
            assert!(told.contains(&lacks), "{told}");
        }
    }

    /// Rules: EX-01, DR-15, MWA-14
    fn a_key_that_comes_late_is_told_what_it_was(link: Link) {
        let it = MemoryPair::new(link, 4096);
        let mr = it.pair.b.reg(&it.far, ALL);
        let (_, key) = keys(mr);
        assert_eq!(dereg(mr), 0);
        let told = refused(&it, it.far.addr(), key);
        let was = format!("the key was that of the region [{:#x}, +4096), which was deregistered ", it.far.addr());
        assert!(told.contains(&was), "{told}");
        let mw = it.pair.b.mw(IBV_MW_TYPE_2);
        let key = rkey(mw);
        assert_eq!(dealloc_mw(mw), 0);
        let told = refused(&it, it.far.addr(), key);
        assert!(told.contains("the key was that of the window, which was deallocated "), "{told}");
    }
}

/// Rules: EX-01, T1-30
#[test]
fn a_window_that_is_not_bound_is_no_range_of_no_bytes() {
    let it = MemoryPair::new(Link::Loopback, 4096);
    let mw = alloc_mw(it.pair.a.another_pd(), IBV_MW_TYPE_2).expect("a window");
    let range =
        Range { mr: it.ma, addr: it.near.addr(), length: 64, access: IBV_ACCESS_REMOTE_READ };
    post(it.pair.qa, &mut bind2_wr(mw, rkey(mw) + 1, range));
    it.pair.a.expect(IBV_WC_MW_BIND_ERR);
    let told = explained(number(it.pair.qa), 0).concat();
    assert!(
        told.contains("the window, which is not bound, belongs to another protection domain ("),
        "{told}"
    );
}
