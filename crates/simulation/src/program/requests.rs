//! Work requests: what a program posts to its send queue.

use transom_device::Access;
use transom_device::protection::{Bind, Key, WindowKind};
use transom_device::qp::Service;
use transom_device::queue::{
    Address, Body, Datagram, LocalOp, Placement, Remote, SendFlags, SendOp, SendRequest, Sge,
};

use super::{EXPOSED_REGIONS, INLINE, Programs, QKEY, WINDOWS};
use crate::model::posted::{PostedSend, Tries, pattern};
use crate::model::rights::{Grants, Kind, Object};
use crate::model::{At, Cause};
use crate::port::Port;
use crate::random::Random;

/// A range of a peer's memory, by its key.
#[derive(Clone, Copy)]
struct Target {
    address: u64,
    key: Key,
    length: u64,
}

impl Programs<'_> {
    /// Posts something that this queue pair may send.
    pub(super) fn post_send(&self, at: At, random: &mut Random) {
        let (service, mtu) = {
            let model = self.shared.model();
            (model.end(at).service, model.end(at).mtu)
        };
        let length = draw_length(random, mtu);
        let immediate = random.number() as u32;
        let choice = match service {
            Service::Rc => random.below(23),
            Service::Uc => random.one_of(&[0, 2, 3, 5, 5, 7, 16, 17, 18, 19]),
            _ => random.below(4),
        };
        let window_key = |at, random: &mut Random| self.window_key(at, random);
        let drawn = match choice {
            0..2 => Some((SendOp::Message(Body::Send), length)),
            2..4 => Some((SendOp::Message(Body::SendImmediate(immediate)), length)),
            4 | 21..23 => window_key(At { device: 1 - at.device, ..at }, random)
                .map(|key| (SendOp::Message(Body::SendInvalidate(key)), length)),
            16..19 => self.draw_bind(at, random).map(|bind| (SendOp::Local(bind), 0)),
            19..21 => {
                window_key(at, random).map(|key| (SendOp::Local(LocalOp::Invalidate(key)), 0))
            }
            _ => self.draw_one_sided(at, choice, length, random),
        };
        let Some((op, length)) = drawn else { return };
        // A datagram is one packet.
        let most = if service == Service::Ud { mtu } else { u64::MAX };
        self.post(at, op, length.min(most), random);
    }

    /// WRITE, READ, atomics and FLUSH.
    fn draw_one_sided(
        &self,
        at: At,
        choice: usize,
        length: u64,
        random: &mut Random,
    ) -> Option<(SendOp, u64)> {
        let needs = match choice {
            5..9 | 14 => Access::REMOTE_WRITE,
            9..12 => Access::REMOTE_READ,
            // Windows never grant it.
            15 if random.chance(self.plan.wildness * 4) => Access::empty(),
            15 => Access::FLUSH_GLOBAL,
            _ => Access::REMOTE_ATOMIC,
        };
        let word = matches!(choice, 12..15);
        let target = self.target(at, needs, if word { 8 } else { length }, random)?;
        let Target { mut address, key, length } = target;
        if word && !random.chance(self.plan.wildness) {
            address = self.aligned(at, &target)?;
        }
        let body = match choice {
            5..7 => Body::Write { address, key, immediate: None },
            7..9 => Body::Write { address, key, immediate: Some(random.number() as u32) },
            9..12 => Body::Read { address, key },
            12 => {
                let compare = if random.chance(500) { 0 } else { random.number() };
                Body::CompareSwap { address, key, swap: random.number(), compare }
            }
            13 => Body::FetchAdd { address, key, add: random.number() },
            14 => Body::AtomicWrite { address, key },
            _ => {
                let (placement, length) = (Placement::GLOBAL, length as u32);
                Body::Flush { address, key, length, placement, whole: false }
            }
        };
        let length = match choice {
            12..15 => 8,
            15 => 0,
            _ => length,
        };
        Some((SendOp::Message(body), length))
    }

    /// The last word at or before a target that is one by its name and in memory, if it is there.
    fn aligned(&self, at: At, target: &Target) -> Option<u64> {
        let model = self.shared.model();
        let objects = &model.rights[1 - at.device].objects;
        let mut grants = objects.iter().filter_map(|object| object.grants);
        let grants = grants.find(|grants| grants.key == target.key.0)?;
        let aligned = target.address & !7;
        let place = grants.place.wrapping_add(aligned.wrapping_sub(grants.base));
        (aligned >= grants.base && place.is_multiple_of(8)).then_some(aligned)
    }

    /// A range of the peer's memory that the queue pair may use like this, mostly; else one that is
    /// wrong in one way.
    fn target(&self, at: At, needs: Access, length: u64, random: &mut Random) -> Option<Target> {
        let model = self.shared.model();
        let (rights, peer) = (&model.rights[1 - at.device], &model.ends[1 - at.device][at.qp]);
        let who = peer.who();
        let wild = if random.chance(self.plan.wildness * 4) { random.within(1..=6) } else { 0 };
        let (all, windows) = (rights.objects.iter(), rights.objects[WINDOWS].iter());
        let candidates: Vec<Grants> = match wild {
            // What was taken away, and whatever there is.
            1 => all.flat_map(|object| object.past.clone()).collect(),
            2 => windows.flat_map(|object| object.past.clone()).collect(),
            3 => all.filter_map(|object| object.grants).collect(),
            4 => windows.filter_map(|object| object.grants).collect(),
            _ => all
                .filter_map(|object| object.grants)
                .filter(|grants| {
                    let range = (grants.base, grants.length.min(1));
                    rights.place(grants.key, range, needs, who, false).is_ok()
                })
                .collect(),
        };
        let grants = random.any_of(&candidates)?;
        self.aimed_at[1 - at.device].set(rights.object_of(grants.key));
        let length = length.min(grants.length);
        if needs == Access::REMOTE_ATOMIC && length < 8 {
            return None;
        }
        let skip = match wild {
            5 => grants.length - length + random.within(1..=8),
            6 => random.within(1..=8).wrapping_neg(),
            _ => random.within(0..=grants.length - length),
        };
        let address = grants.base.wrapping_add(skip);
        Some(Target { address, key: Key(grants.key), length })
    }

    /// The key of a window that this queue pair may invalidate, mostly; one in use, if there is one.
    fn window_key(&self, at: At, random: &mut Random) -> Option<Key> {
        let model = self.shared.model();
        let (rights, who) = (&model.rights[at.device], model.end(at).who());
        let wild = random.chance(self.plan.wildness);
        let own = |object: &Object, grants: &Grants| {
            let type2 = object.kind != Kind::Window(WindowKind::Type1);
            let owned = grants.bound.is_some_and(|(qp, _)| qp == who.qp);
            wild || type2 && owned && object.pd == who.pd
        };
        let key = |object: &Object| {
            let bound = object.grants.filter(|grants| own(object, grants));
            let past = object.past.last().filter(|_| wild);
            bound.or(past.copied()).map(|grants| grants.key)
        };
        let used = self.aimed_at[at.device].get().filter(|_| random.chance(500));
        let used = used.and_then(|index| key(&rights.objects[index]));
        let keys: Vec<u32> = rights.objects[WINDOWS].iter().filter_map(key).collect();
        used.or_else(|| random.any_of(&keys)).map(Key)
    }

    /// A bind that is allowed, mostly.
    fn draw_bind(&self, at: At, random: &mut Random) -> Option<LocalOp> {
        let model = self.shared.model();
        let (rights, who) = (&model.rights[at.device], model.end(at).who());
        let wild = random.chance(self.plan.wildness);
        let windows: Vec<_> = rights.objects[WINDOWS]
            .iter()
            .filter(|object| {
                let type1 = object.kind == Kind::Window(WindowKind::Type1);
                wild || object.pd == who.pd && (type1 || object.grants.is_none())
            })
            .filter_map(|object| object.handle.map(|(_, key)| (object.kind, key)))
            .collect();
        let used = self.aimed_at[at.device].get().filter(|_| random.chance(500));
        let used = used.and_then(|index| {
            let object = &rights.objects[index];
            let (type1, key) = (object.kind == Kind::Window(WindowKind::Type1), object.handle?.1);
            (type1 && object.pd == who.pd).then_some((object.kind, key))
        });
        let (kind, key) = used.or_else(|| random.any_of(&windows))?;
        let regions: Vec<_> = rights.objects[EXPOSED_REGIONS]
            .iter()
            .filter(|object| wild || object.pd == who.pd)
            .filter_map(|object| object.grants)
            .filter(|grants| {
                let needs = Access::MW_BIND | Access::LOCAL_WRITE;
                wild || grants.length > 0 && grants.access.contains(needs)
            })
            .collect();
        let region = random.any_of(&regions)?;
        let type1 = kind == Kind::Window(WindowKind::Type1);
        let length = match region.length {
            _ if type1 && random.chance(150) => 0,
            0 => 1,
            whole => random.within(1..=whole),
        };
        let skip = random.within(0..=region.length.saturating_sub(length));
        let slip = if wild { random.within(0..=1) } else { 0 };
        let mut access = Access::REMOTE;
        if random.chance(200) {
            access &= Access::from_bits_retain(random.number() as u32);
        }
        if random.chance(300) && !type1 {
            access |= Access::ZERO_BASED;
        }
        let bind = Bind {
            window: Key(key).next(),
            region: Key(region.key),
            address: region.base + skip + slip,
            length,
            access,
        };
        Some(if type1 { LocalOp::BindType1(bind) } else { LocalOp::BindType2(bind) })
    }

    /// Posts a work request, and tells the model.
    pub(super) fn post(&self, at: At, op: SendOp, length: u64, random: &mut Random) {
        let body = if let SendOp::Message(body) = op { Some(body) } else { None };
        let carries = body.is_some_and(|body| body.carries_data());
        let inline = carries && length as usize <= INLINE && random.chance(200);
        let sges = if inline || length == 0 {
            Vec::new()
        } else {
            let Some(sges) = self.sges(at.device, length, random) else { return };
            sges
        };
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::FENCE, random.chance(100));
        flags.set(SendFlags::SOLICITED, random.chance(100));
        flags.set(SendFlags::INLINE, inline);
        let signaled = body.is_none() || random.chance(700) || self.needs_signal(at);
        flags.set(SendFlags::SIGNALED, signaled);
        let wr_id = self.next_id();
        if carries {
            self.fill(at.device, wr_id, &sges);
        }
        let bytes: Vec<u8> = (0..length).map(|offset| pattern(wr_id, offset)).collect();
        let parts = [&bytes[..]];
        let remote = self.remote(at);
        let inline = inline.then_some(&parts[..]);
        let request = SendRequest { wr_id, op, flags, sges: &sges, inline, remote };
        self.shared.say(|| format!("{at} posts {wr_id:#x} {op:x?}, {length} bytes, {flags:?}"));
        {
            let mut model = self.shared.model();
            let end = model.end_mut(at);
            let packets = match body {
                None => 0,
                Some(_) => length.div_ceil(end.mtu).max(1),
            };
            let posted = PostedSend {
                wr_id,
                op,
                flags,
                sges: sges.clone(),
                length,
                first: end.next_packet(),
                packets,
                stored: 0,
                sent: vec![Tries::default(); packets as usize],
                status: None,
            };
            end.sends.push(posted);
        }
        let qp = self.shared.nodes[at.device].qp(at.qp);
        let port = Port { shared: self.shared, at, qp: &qp, cause: &Cause::Itself };
        let taken = qp.endpoint.borrow_mut().post_send(&port, &request);
        if let Err(error) = taken {
            self.shared.say(|| format!("{at} cannot: {error:?}"));
            self.shared.model().end_mut(at).sends.take_back();
            return;
        }
        self.shared.advance(at);
    }

    /// Whether the next work request takes the last place that those before it, which end silently, leave: without a
    /// completion none of them would come back (rule ORD-06).
    fn needs_signal(&self, at: At) -> bool {
        let model = self.shared.model();
        let silent = |send: &&PostedSend| !send.flags.contains(SendFlags::SIGNALED);
        let silent = model.end(at).sends.iter().rev().take_while(silent).count();
        silent + 1 >= self.shared.nodes[at.device].qp(at.qp).size
    }

    /// Writes what a work request sends to its local buffers.
    fn fill(&self, device: usize, wr_id: u64, sges: &[Sge]) {
        let mut offset = 0;
        for sge in sges {
            let length = u64::from(sge.length);
            let bytes: Vec<u8> =
                (offset..offset + length).map(|offset| pattern(wr_id, offset)).collect();
            self.shared.nodes[device].device.store(sge.address, &bytes).expect("memory is there");
            offset += length;
        }
    }

    fn remote(&self, at: At) -> Remote {
        let model = self.shared.model();
        let (own, peer) = (model.end(at), &model.ends[1 - at.device][at.qp]);
        if own.service != Service::Ud {
            return Remote::Connected;
        }
        let [source, gid] = [at.device, 1 - at.device].map(|device| self.shared.gid(device));
        let address = Address { source, gid, traffic_class: 0, hop_limit: 64, flow_label: 0 };
        Remote::Datagram(Datagram { pd: own.pd, address, qp: peer.number.bits(), qkey: QKEY })
    }
}

/// A length around a multiple of the path MTU, or anything.
fn draw_length(random: &mut Random, mtu: u64) -> u64 {
    match random.below(8) {
        0 => 0,
        1 => random.within(1..=64),
        2..5 => random.within(1..=3) * mtu + random.within(0..=4) - 2,
        5 => random.within(1..=6) * mtu,
        _ => random.within(1..=6 * mtu),
    }
}
