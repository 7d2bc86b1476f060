//! The likely intention behind a refused call, and what to do instead.

use transom_device::Access;
use transom_device::qp::{Mask, QpState};

use super::super::named::State;

/// The error in a field that cannot be `value`, if we know more about it.
pub(super) fn of_invalid(field: &str, value: u64) -> Option<String> {
    let access = || Access::from_bits_retain(value as u32);
    match field {
        "access" => missing_local_write(access()),
        "sg_list" if value == 0 => Some("sg_list is NULL, though num_sge is not 0".to_owned()),
        "bind_mw.mw->type" | "mw->type" if matches!(value, 1 | 2) => Some(format!(
            "{field} is {value}: ibv_post_send binds windows of type 2, ibv_bind_mw those of type 1"
        )),
        "ah_attr.port_num" | "port_num" => Some(format!(
            "{field} is {value}, and the device has port 1 only: it is left out easily"
        )),
        _ => None,
    }
}

/// Remote write access requires local write access.
fn missing_local_write(access: Access) -> Option<String> {
    let remote = access & (Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    let lacks = !remote.is_empty() && !access.contains(Access::LOCAL_WRITE);
    lacks.then(|| format!("access has {remote} without LOCAL_WRITE, which goes with it"))
}

/// A verb as a program calls it. Some are macros of `<infiniband/verbs.h>`, which call another function.
pub(super) fn called(verb: &str) -> String {
    match verb {
        "ibv_reg_mr_iova2" => "ibv_reg_mr".to_owned(),
        _ => verb.trim_start_matches('_').to_owned(),
    }
}

/// The field of `ibv_qp_attr` of one attribute, if a number goes there.
pub(super) fn attribute_name(attribute: Mask) -> Option<&'static str> {
    Some(match attribute {
        Mask::TIMEOUT => "timeout",
        Mask::RETRY_CNT => "retry_cnt",
        Mask::RNR_RETRY => "rnr_retry",
        Mask::MIN_RNR_TIMER => "min_rnr_timer",
        Mask::MAX_QP_RD_ATOMIC => "max_rd_atomic",
        Mask::MAX_DEST_RD_ATOMIC => "max_dest_rd_atomic",
        Mask::PKEY_INDEX => "pkey_index",
        _ => return None,
    })
}

/// The attribute that the program itself has set a limit with, for a field of a work request.
pub(super) fn asked_for(verb: &str, field: &str) -> Option<(&'static str, &'static str)> {
    let receives = verb == "ibv_post_recv";
    Some(match (verb, field) {
        ("ibv_post_srq_recv" | "ibv_post_srq_ops", "num_sge") => ("ibv_create_srq", "attr.max_sge"),
        (_, "num_sge") if receives => ("ibv_create_qp", "cap.max_recv_sge"),
        (_, "num_sge") => ("ibv_create_qp", "cap.max_send_sge"),
        (_, "the inline length") => ("ibv_create_qp", "cap.max_inline_data"),
        (_, "the length of the batch") => ("ibv_create_qp", "cap.max_send_wr"),
        _ => return None,
    })
}

/// The states through which a queue pair goes to RTS.
const LADDER: [QpState; 4] = [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts];

fn state(number: u64) -> Option<QpState> {
    u32::try_from(number).ok().and_then(QpState::new)
}

/// The changes that lead from a state to another, if it takes several.
pub(super) fn way(from: u64, to: u64) -> Option<String> {
    let place = |number| LADDER.iter().position(|it| Some(*it) == state(number));
    let to = place(to)?;
    // Every state leads to RESET.
    let first = place(from).filter(|from| *from < to).map_or(0, |from| from + 1);
    let steps: Vec<_> = LADDER[first..=to].iter().map(|it| format!("to {}", State(*it))).collect();
    match &steps[..] {
        [] | [_] => None,
        [first, others @ ..] => Some(format!("{first} first, then {}", others.join(", then "))),
    }
}

/// The state that a verb needs, and the way there.
pub(super) fn needed_state(verb: &str, is: u64) -> Option<String> {
    let rts = QpState::Rts as u64;
    match verb {
        "ibv_post_recv" => {
            Some(format!("{verb} needs INIT, RTR or RTS: ibv_modify_qp to INIT first"))
        }
        "ibv_post_send" | "ibv_wr_complete" | "ibv_bind_mw" => Some(match way(is, rts) {
            Some(way) => format!("{verb} needs RTS: ibv_modify_qp {way}"),
            None => format!("{verb} needs RTS: ibv_modify_qp to RTS first"),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_a_state_goes_by_those_before_it() {
        let way = |from: QpState, to: QpState| way(from as u64, to as u64);
        assert_eq!(
            way(QpState::Reset, QpState::Rts).as_deref(),
            Some("to INIT first, then to RTR, then to RTS")
        );
        assert_eq!(way(QpState::Init, QpState::Rts).as_deref(), Some("to RTR first, then to RTS"));
        assert_eq!(way(QpState::Rtr, QpState::Rts), None);
        assert_eq!(
            way(QpState::Error, QpState::Rtr).as_deref(),
            Some("to RESET first, then to INIT, then to RTR")
        );
        assert_eq!(
            way(QpState::Rtr, QpState::Init).as_deref(),
            Some("to RESET first, then to INIT")
        );
        assert_eq!(way(QpState::Init, QpState::Sqd), None);
    }
}
