//! The command that shows a failure again.

use transom_rehearse::{Place, Plan};

use super::cut::Least;
use super::{LIMIT, RehearseArgs};
use crate::shell::option;

/// The command. It has every option that was given, but those that only say how often and how to report. Without `least`
/// the places were given.
pub(super) fn again(args: &RehearseArgs, plan: &Plan, least: Option<&Least>) -> String {
    let program = args.program.words().join(" ");
    let (devices, hidden) = (args.program.options(), args.suppressions.words());
    if let Some(Least::Unprovoked { .. }) = least {
        return format!("transom check{devices}{hidden} -- {program}");
    }
    let adapter = args.profile.map_or(String::new(), |it| option("as", it.name));
    let order = args.order.map_or(String::new(), |it| option("order", it.name()));
    let seed = match least {
        // The run that shows it comes before those with seeds.
        Some(Least::Profile(_)) => option("runs", "0"),
        _ => option("seed", plan.seed.to_string()),
    };
    let what = match least {
        None => at(args.at.iter()) + &args.provocations.words(),
        Some(Least::Profile(_)) => String::new(),
        Some(Least::NotAgain(_) | Least::Unprovoked { .. }) => args.provocations.words(),
        Some(Least::Kinds(kinds)) => {
            let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
            option("only", names.join(","))
        }
        Some(Least::Places(places)) => at(places.iter()),
    };
    let limit = match args.limit {
        LIMIT => String::new(),
        limit => option("limit", format!("{}s", limit.as_secs())),
    };
    format!("transom rehearse{adapter}{order}{seed}{what}{limit}{devices}{hidden} -- {program}")
}

/// The options for these places.
fn at<'a>(places: impl Iterator<Item = &'a Place>) -> String {
    places.map(|place| option("at", place.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use transom_rehearse::Provocation;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: RehearseArgs,
    }

    fn args(words: &[&str]) -> RehearseArgs {
        Line::parse_from(["rehearse"].iter().chain(words)).args
    }

    /// Rule: REH-42
    #[test]
    fn it_has_every_option_that_was_given() {
        let given = [
            "--as",
            "irdma",
            "--order",
            "spec",
            "--runs",
            "7",
            "--only",
            "late-work,small-mtu",
            "--without",
            "small-mtu",
            "--limit",
            "2m",
            "--devices",
            "2",
            "--device-name",
            "rxe0",
            "--fault",
            "loss=1%",
            "--fault",
            "delay=2ms",
            "--capture",
            "a b",
            "--suppressions",
            "s t",
            "--json",
            "p",
            "it's",
        ];
        let args = args(&given);
        let plan = args.plan(3);
        let of = |least| again(&args, &plan, least);
        let rest = "--limit 120s --device-name rxe0 --devices 2 --capture 'a b' --fault loss=1% \
                    --fault delay=2ms --suppressions 's t' -- p 'it'\\''s'";
        let own = "--only late-work,small-mtu --without small-mtu";
        let (head, seed) = ("transom rehearse --as irdma --order spec", "--seed 3");
        assert_eq!(of(Some(&Least::NotAgain(1))), format!("{head} {seed} {own} {rest}"));
        let kinds = Least::Kinds(vec![Provocation::LateWork]);
        assert_eq!(of(Some(&kinds)), format!("{head} {seed} --only late-work {rest}"));
        let place: Place = "late-work:0.1.2".parse().unwrap();
        let places = Least::Places(vec![place]);
        assert_eq!(of(Some(&places)), format!("{head} {seed} --at late-work:0.1.2 {rest}"));
        let profile = Least::Profile(args.profile.unwrap());
        assert_eq!(of(Some(&profile)), format!("{head} --runs 0 {rest}"));
    }

    /// Rule: REH-42
    #[test]
    fn places_that_were_given_stay_with_what_was_left_out() {
        let given = ["--seed", "5", "--at", "late-work:0.1.2", "--without", "small-mtu"];
        let device = ["--device", "mlx5_0,port=down", "p"];
        let args = args(&[&given[..], &device[..]].concat());
        let expected = "transom rehearse --seed 5 --at late-work:0.1.2 --without small-mtu \
                        --device mlx5_0,port=down -- p";
        assert_eq!(again(&args, &args.plan(5), None), expected);
    }
}
