//! Values that are too large for a commit, by their digest. A value is one message, so that it is there whole or not at all.

use bytes::Bytes;
use teamster_protocol::{BlobRef, Digest, limits, subject};

use crate::{Error, connection::Mesh, topology::BLOBS, wire::Get};

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

    /// Stores a value; returns when it is stored. Storing it again changes nothing.
    pub async fn put(&self, bytes: Bytes) -> Result<BlobRef, Error> {
        let blob = BlobRef::of(&bytes);
        let what = || format!("the value {}", blob.sha256.short());
        if bytes.len() > limits::BLOB_BYTES_MAX {
            return Err(Error::Malformed {
                what: what(),
                source: Box::new(Unfit::TooLarge(bytes.len())),
            });
        }
        // Something else may lie there: the server stores its answers wherever a request's reply subject points.
        if self.find(&blob).await?.is_some_and(|found| found == bytes) {
            return Ok(blob);
        }
        self.mesh
            .wire()
            .store(subject::blob(&blob.sha256), None, bytes)
            .await
            .map_err(|failure| failure.during(format!("storing {}", what())))?;
        Ok(blob)
    }

    /// A stored value; `None` if there is none of that name. What lies there under another digest is an error.
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

    async fn find(&self, blob: &BlobRef) -> Result<Option<Bytes>, Error> {
        let subject = subject::blob(&blob.sha256);
        let get = Get {
            last_by_subj: Some(&subject),
            ..Get::default()
        };
        let found = self.mesh.wire().get(BLOBS, &get).await;
        let found = found.map_err(|failure| {
            failure.during(format!("reading the value {}", blob.sha256.short()))
        })?;
        Ok(found.map(|message| message.body))
    }
}
