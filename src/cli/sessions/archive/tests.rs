//! What is exported verifies, and nothing that was changed does.

use proptest::prelude::*;
use teamster_protocol::{Phase, Principal};
use teamster_testkit::written;

use super::*;

fn session() -> SessionId {
    SessionId::parse("s").expect("valid")
}

fn commit(n: u64, prev: Digest, events: Vec<Event>) -> Vec<u8> {
    let commit = written::commit(&session(), n, prev, Phase::Idle, events);
    commit.encode().expect("encodes")
}

/// Commits that follow one another from number `from`.
fn chain(from: u64, length: u64) -> Vec<Vec<u8>> {
    let mut commits: Vec<Vec<u8>> = Vec::new();
    for n in from..from + length {
        let prev = commits.last().map_or(Digest::ZERO, Digest::of);
        let text = format!("text {n} \u{1b}\u{202e}é\n");
        let created = Event::SessionCreated {
            by: Principal::parse("owner").expect("valid"),
            title: Some(text),
            workspace: None,
            metadata: std::collections::BTreeMap::new(),
        };
        commits.push(commit(n, prev, vec![created]));
    }
    commits
}

fn export(commits: &[Vec<u8>]) -> Vec<String> {
    let last = commits.last().map(Vec::as_slice).unwrap_or_default();
    let header = Header::new(&session(), commits.len() as u64, last, 7, None);
    let mut lines = vec![serde_json::to_string(&header).expect("encodes")];
    for (place, bytes) in commits.iter().enumerate() {
        lines.push(commit_line(place as u64 * 3 + 1, bytes));
    }
    lines.push(blob_line("a value\n".as_bytes()));
    lines.push(blob_line(&[0xff, 0, 1]));
    lines
}

fn verify(lines: &[String]) -> Result<Summary, Problem> {
    let mut verifier = Verifier::begin(lines.first().map_or("", String::as_str))?;
    for (place, line) in lines.iter().enumerate().skip(1) {
        verifier.line(place as u64 + 1, line)?;
    }
    verifier.end()
}

#[test]
fn dur_7_what_was_exported_of_a_damaged_log_does_not_verify() {
    let commits = chain(1, 3);
    let last = commits.last().expect("some");
    let damage = Some("it ends at sequence 3, but commit 4 was stored".to_owned());
    let header = Header::new(&session(), 3, last, 7, damage);
    let mut lines = export(&commits);
    lines[0] = serde_json::to_string(&header).expect("encodes");
    let Problem(what) = verify(&lines).expect_err("refused");
    assert!(what.ends_with("commit 4 was stored"), "{what}");
}

fn accepted(n: u64, before: &[u8]) -> Vec<u8> {
    let accepted = Event::LossAccepted {
        by: Principal::parse("owner").expect("valid"),
        lost_from: 2,
        kept: Digest::ZERO,
        message: "torn".to_owned(),
        turns: 0,
        spent: Vec::new(),
        unknown: 0,
    };
    commit(n, Digest::of(before), vec![accepted])
}

#[test]
fn what_is_exported_verifies() {
    let lines = export(&chain(1, 4));
    let summary = verify(&lines).expect("whole");
    assert_eq!(
        (summary.commits, summary.first, summary.last, summary.blobs),
        (4, 1, 4, 2)
    );
    assert!(lines.iter().all(|line| !line.contains('\n')));
    let tombstone = commit(9, Digest::ZERO, vec![deleted()]);
    let summary = verify(&export(&[tombstone])).expect("the tombstone of a deleted session");
    assert_eq!((summary.first, summary.last), (9, 9));
}

fn deleted() -> Event {
    Event::SessionDeleted {
        by: Principal::parse("owner").expect("valid"),
        turns: 1,
        queued: 0,
        approvals: Vec::new(),
        keys: Vec::new(),
        spent: Vec::new(),
    }
}

#[test]
fn dur_7_a_log_that_lost_its_beginning_is_not_taken_for_a_deleted_one() {
    let problem = verify(&export(&chain(2, 5))).expect_err("no deletion");
    assert!(problem.0.contains("begins with commit 2"), "{}", problem.0);
}

#[test]
fn what_is_missing_or_changed_is_told_by_its_line() {
    let whole = export(&chain(1, 4));
    let without = |place: usize| {
        let mut lines = whole.clone();
        lines.remove(place);
        lines
    };
    let changed = |place: usize, from: &str, to: &str| {
        let mut lines = whole.clone();
        lines[place] = lines[place].replacen(from, to, 1);
        assert_ne!(lines[place], whole[place]);
        lines
    };
    let mut swapped = whole.clone();
    swapped.swap(2, 3);
    let mut foreign = whole.clone();
    foreign[0] = foreign[0].replace("\"s\"", "\"t\"");
    for (lines, part) in [
        (without(0), "line 1"),
        (without(2), "line 3: commit 3 does not follow"),
        (without(4), "3 of 4 commits"),
        (
            changed(3, "text 3", "text 4"),
            "line 4: its bytes are not those",
        ),
        (changed(2, "\"seq\":4", "\"seq\":1"), "line 3: its sequence"),
        (
            changed(1, "\"type\":\"commit\"", "\"type\":\"other\""),
            "line 2: it is neither",
        ),
        (changed(0, "\"v\":1", "\"v\":2"), "version 2"),
        (swapped, "line 4: its sequence"),
        (foreign, "belongs to the session s"),
        (vec![String::new()], "line 1"),
    ] {
        let problem = verify(&lines).expect_err(part);
        assert!(problem.0.contains(part), "{part}: {}", problem.0);
    }
}

#[test]
fn a_loss_counts_when_it_is_accepted() {
    let first = chain(1, 1).remove(0);
    let torn = b"\0\0torn".to_vec();
    let problem = verify(&export(&[first.clone(), torn.clone()])).expect_err("torn");
    assert!(problem.0.starts_with("line 3: "), "{}", problem.0);
    let accepted = accepted(1026, &torn);
    let after = commit(1027, Digest::of(&accepted), Vec::new());
    let summary = verify(&export(&[first, torn, accepted, after])).expect("accepted");
    assert_eq!((summary.losses, summary.last), (1, 1027));
}

proptest! {
    /// Whatever one character of a commit's line becomes: the file does not verify as if nothing had happened.
    #[test]
    fn no_changed_character_goes_unseen(line in 1_usize..5, at in any::<prop::sample::Index>(), to in "[a-z0-9]") {
        let mut lines = export(&chain(1, 4));
        let mut characters: Vec<char> = lines[line].chars().collect();
        let place = at.index(characters.len());
        let to = to.chars().next().expect("one");
        prop_assume!(characters[place] != to);
        characters[place] = to;
        lines[line] = characters.into_iter().collect();
        // A sequence may become another one that follows all the same: it is a place in a stream, not a part of the chain.
        let is_sequence = lines[line].find("\"seq\":").is_some_and(|begin| (begin + 6..begin + 10).contains(&place));
        prop_assume!(!is_sequence);
        prop_assert!(verify(&lines).is_err(), "{}", lines[line]);
    }

    /// Any bytes survive the form.
    #[test]
    fn any_bytes_survive(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        prop_assert_eq!(unhex(&hex(&bytes)), Some(bytes.clone()));
        let line: serde_json::Value = serde_json::from_str(&blob_line(&bytes)).expect("JSON");
        let back = match (line["text"].as_str(), line["hex"].as_str()) {
            (Some(text), None) => text.as_bytes().to_vec(),
            (None, Some(hex)) => unhex(hex).expect("digits"),
            other => panic!("{other:?}"),
        };
        prop_assert_eq!(back, bytes);
    }
}
