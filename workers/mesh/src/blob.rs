//! Values that are too large for a commit, by their digest. A value is one message, so that it is there whole or not at all.

use std::collections::BTreeSet;

use bytes::Bytes;
use teamster_protocol::{BlobRef, Digest, limits, subject};

use crate::{
    Error,
    connection::Mesh,
    guard,
    topology::BLOBS,
    wire::{Failure, Get, StoredMessage},
};

/// The stream BLOBS, through one worker's connection.
#[derive(Clone)]
pub struct Blobs {
    mesh: Mesh,
}

/// Why bytes are not a stored value.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    /// Larger than one message may be.
    #[error("it has {0} bytes, of {max} at most", max = limits::BLOB_BYTES_MAX)]
    TooLarge(usize),
    /// Other bytes than its name says.
    #[error("its bytes are not those that its digest names")]
    OtherBytes,
}

impl Blobs {
    pub(crate) fn new(mesh: Mesh) -> Self {
        Self { mesh }
    }

    /// Stores a value; returns when it is stored. The same value stored again takes the place of the first, so that whoever was
    /// about to remove that one as old removes nothing.
    pub async fn put(&self, bytes: Bytes) -> Result<BlobRef, Error> {
        let blob = BlobRef::of(&bytes);
        let what = || format!("the value {}", blob.sha256.short());
        if bytes.len() > limits::BLOB_BYTES_MAX {
            return Err(Error::Malformed {
                what: what(),
                source: Box::new(Unfit::TooLarge(bytes.len())),
            });
        }
        let (wire, name) = (self.mesh.wire(), subject::blob(&blob.sha256));
        let about = |failure: Failure| failure.during(format!("storing {}", what()));
        guard::replaceable(wire, BLOBS, &name)
            .await
            .map_err(about)?;
        wire.store(name, None, bytes).await.map_err(about)?;
        Ok(blob)
    }

    /// A stored value; `None` if there is none of that name. What lies there under another digest, or with damaged bytes, is an
    /// error.
    pub async fn get(&self, blob: &BlobRef) -> Result<Option<Bytes>, Error> {
        let Some(bytes) = self.find(blob).await? else {
            return Ok(None);
        };
        if Digest::of(&bytes) != blob.sha256 {
            return Err(Error::Malformed {
                what: format!("the value {}", blob.sha256.short()),
                source: Box::new(Unfit::OtherBytes),
            });
        }
        Ok(Some(bytes))
    }

    /// The names of what is stored, `VALUES_LISTED_MAX` or some more at most.
    pub async fn list(&self) -> Result<BTreeSet<Digest>, Error> {
        let listed = self
            .mesh
            .wire()
            .subjects(BLOBS, &subject::blob_pattern(), limits::VALUES_LISTED_MAX)
            .await
            .map_err(|failure| failure.during("listing the stored values"))?;
        let names = listed.keys().filter_map(|name| subject::read_blob(name));
        Ok(names.collect())
    }

    /// The place of the value that was stored last, whether or not it is still there; 0 if none ever was.
    pub async fn last(&self) -> Result<u64, Error> {
        #[derive(serde::Deserialize)]
        struct Info {
            state: State,
        }
        #[derive(serde::Deserialize)]
        struct State {
            last_seq: u64,
        }
        let subject = format!("STREAM.INFO.{BLOBS}");
        let wire = self.mesh.wire();
        let info = wire.api::<Info>(&subject, &serde_json::Value::Null).await;
        let info = info.map_err(|failure| failure.during("asking where the stored values end"))?;
        Ok(info.state.last_seq)
    }

    /// Where a value lies now: the sequence of its message. `None` if there is none.
    pub async fn place(&self, name: &Digest) -> Result<Option<u64>, Error> {
        Ok(self.message(name).await?.map(|message| message.seq))
    }

    /// Overwrites and removes what lies at a sequence; that nothing lies there any more is no failure. A value that was stored again
    /// lies at another one.
    pub async fn erase(&self, seq: u64) -> Result<(), Error> {
        let erased = self.mesh.wire().erase(BLOBS, seq).await;
        erased.map_err(|failure| failure.during("removing a stored value"))
    }

    async fn find(&self, blob: &BlobRef) -> Result<Option<Bytes>, Error> {
        Ok(self
            .message(&blob.sha256)
            .await?
            .map(|message| message.body))
    }

    async fn message(&self, name: &Digest) -> Result<Option<StoredMessage>, Error> {
        let subject = subject::blob(name);
        let get = Get {
            last_by_subj: Some(&subject),
            ..Get::default()
        };
        let wire = self.mesh.wire();
        let about =
            |failure: Failure| failure.during(format!("reading the value {}", name.short()));
        let found = wire.get(BLOBS, &get).await.map_err(about)?;
        if found.is_none() {
            // A value that cannot be read is not one that is not there.
            guard::replaceable(wire, BLOBS, &subject)
                .await
                .map_err(about)?;
        }
        Ok(found)
    }
}
