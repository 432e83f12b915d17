//! Damage to what nats-server has stored: a byte of one message is flipped in the file that holds it.
//!
//! A block file is a sequence of records: their length (4 bytes, the highest bit says whether there are headers), the message's
//! sequence (8 bytes, of which the two highest bits are marks), its time (8 bytes), the length of its subject (2 bytes), subject,
//! headers and body, and a checksum (8 bytes); all numbers begin with their least byte.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Bytes of the checksum at a record's end.
const CHECKSUM: usize = 8;
/// The marks in a sequence.
const MARKS: u64 = 3 << 62;

/// Flips a byte in the body of message `seq` of a stream below a server's store.
///
/// # Panics
/// When there is no such stream or message.
pub fn damage(store: &Path, stream: &str, seq: u64) {
    flip(store, stream, &|record| record.seq == seq, &|record| {
        record.end - CHECKSUM - 1
    });
}

/// Flips a byte in the head of message `seq` of a stream below a server's store: in the sequence that stands there.
///
/// # Panics
/// When there is no such stream or message.
pub fn damage_head(store: &Path, stream: &str, seq: u64) {
    flip(store, stream, &|record| record.seq == seq, &|record| {
        record.begin + 4
    });
}

/// Cuts off the end of the file that holds message `seq` of a stream below a server's store, from the middle of that message on.
///
/// # Panics
/// When there is no such stream or message.
pub fn cut(store: &Path, stream: &str, seq: u64) {
    change(
        store,
        stream,
        &|record| record.seq == seq,
        &|bytes, record| {
            bytes.truncate(usize::midpoint(record.begin, record.end));
        },
    );
}

/// Flips a byte in the body of the last message of a subject.
///
/// # Panics
/// When there is no such stream or message.
pub fn damage_last(store: &Path, stream: &str, subject: &str) {
    let last = sequences(store, stream, subject).into_iter().max();
    let last = last.unwrap_or_else(|| panic!("{stream} holds nothing of {subject}"));
    damage(store, stream, last);
}

/// The sequences of a subject's messages, as they lie in the files.
///
/// # Panics
/// When a file cannot be read.
pub fn sequences(store: &Path, stream: &str, subject: &str) -> Vec<u64> {
    let mut found = Vec::new();
    for block in blocks(store, stream) {
        let bytes = fs::read(&block).expect("a block");
        let own = records(&bytes)
            .into_iter()
            .filter(|record| record.subject == subject);
        found.extend(own.map(|record| record.seq));
    }
    found
}

fn flip(
    store: &Path,
    stream: &str,
    is_wanted: &dyn Fn(&Record) -> bool,
    place: &dyn Fn(&Record) -> usize,
) {
    change(store, stream, is_wanted, &|bytes, record| {
        *bytes.get_mut(place(record)).expect("within the record") ^= 0x55;
    });
}

fn change(
    store: &Path,
    stream: &str,
    is_wanted: &dyn Fn(&Record) -> bool,
    change: &dyn Fn(&mut Vec<u8>, &Record),
) {
    for block in blocks(store, stream) {
        let mut bytes = fs::read(&block).expect("a block");
        let found = records(&bytes).into_iter().find(is_wanted);
        if let Some(record) = found {
            change(&mut bytes, &record);
            fs::write(&block, bytes).expect("written");
            return;
        }
    }
    panic!("no block of {stream} below {} holds it", store.display());
}

/// A record of a block.
struct Record {
    seq: u64,
    subject: String,
    /// Where it begins and ends.
    begin: usize,
    end: usize,
}

fn records(bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    let mut at = 0;
    while let Some(head) = bytes.get(at..at + 22) {
        let number = |from: usize, to: usize| {
            let bytes = head.get(from..to).expect("a whole head");
            bytes
                .iter()
                .rev()
                .fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let length = usize::try_from(number(0, 4) & 0x7fff_ffff).expect("fits");
        let subject = usize::try_from(number(20, 22)).expect("fits");
        let (from, end) = (at + 22, at + length);
        let Some(subject) = bytes.get(from..from + subject) else {
            break;
        };
        if length < 22 || end > bytes.len() {
            break;
        }
        records.push(Record {
            seq: number(4, 12) & !MARKS,
            subject: String::from_utf8_lossy(subject).into_owned(),
            begin: at,
            end,
        });
        at = end;
    }
    records
}

/// The block files of a stream, of whatever account.
fn blocks(store: &Path, stream: &str) -> Vec<PathBuf> {
    let entries = |folder: PathBuf| {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.map(|entry| entry.expect("an entry").path())
    };
    entries(store.join("jetstream"))
        .flat_map(|account| entries(account.join("streams").join(stream).join("msgs")))
        .filter(|path| path.extension().is_some_and(|ext| ext == "blk"))
        .collect()
}
