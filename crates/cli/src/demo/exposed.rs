//! The account of a guest that opens more than it needs, as `transom exposure` keeps it.

use super::narrator::{Narrator, Role};
use super::partner::Partner;
use super::{Station, finish};
use crate::check::Directory;
use crate::exposure::{account_of, sentence};
use crate::failure::{Failure, Result};
use transom::{Access, MemoryRegion, RemoteSlice};
use transom_exposure::report::groups;
use transom_system::environment::EXPOSURE;

/// The bytes of a request.
const REQUEST: usize = 64;

const FIRST: &str = "The data of request 1.";
const SECOND: &str = "The data of request 2.";

/// A client of a storage server once lost data so: a READ came after its request had timed out.
pub(super) fn show(say: &mut Narrator, owner: &Station) -> Result {
    let directory = match Directory::make() {
        Ok(directory) => directory,
        Err(problem) => {
            return say.plain(&format!(
                "\n`transom exposure` would show more, but it has no place for files: {problem}"
            ));
        }
    };
    let mut guest = Partner::start(&EXPOSURE, Some(directory.path()))?;
    let qp = guest.connect(owner)?;
    let grant = guest.lend(FIRST)?;
    let what = format!(
        "asks the owner to fetch the {REQUEST} bytes of a request, and opens its pool of {} to it.",
        grant.length
    );
    say.step(Role::Guest, what)?;
    guest.reuse(SECOND)?;
    say.step(Role::Guest, "waits, gives up, and uses the same bytes for its next request.")?;
    let inbox = MemoryRegion::register(&owner.pd, vec![0; REQUEST], Access::LOCAL_WRITE)
        .map_err(|refused| refused.error)?;
    let request = RemoteSlice { addr: grant.addr, rkey: grant.rkey, length: REQUEST as u64 };
    finish(qp.read(&[inbox.all()], request)?)?.map_err(Failure::new)?;
    let mut bytes = [0; REQUEST];
    inbox.read_at(0, &mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_end_matches('\0');
    if text != SECOND {
        return Err(Failure::new(format_args!("the owner should have read {SECOND:?}: {text:?}")));
    }
    say.step(Role::Owner, format_args!("fetches the first request at last, and gets: {text:?}"))?;
    drop(qp);
    guest.dismiss()?;
    let accounts = account_of(&directory)?;
    match groups(&accounts).first() {
        Some(worst) if worst.sums.openings == 1 && worst.sums.touched == REQUEST as u128 => {
            say.open(&sentence(worst))
        }
        other => Err(Failure::new(format_args!(
            "`transom exposure` should have named one region, {REQUEST} bytes of it used: {other:?}"
        ))),
    }
}
