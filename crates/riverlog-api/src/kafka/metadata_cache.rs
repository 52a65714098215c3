//! The answer about all topics, encoded once for all who ask (RC-34): a thousand clients that reconnect at once to a node with
//! many partitions cost one encoding, and share its bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use riverlog_core::metadata::MetadataImage;

/// The encoded bodies for the image that was current last; at most one for each version of the API and set of its flags.
#[derive(Debug, Default)]
pub(crate) struct MetadataCache(Mutex<Bodies>);

#[derive(Debug, Default)]
struct Bodies {
    image: Option<Arc<MetadataImage>>,
    by_kind: BTreeMap<Kind, Bytes>,
}

/// Version, whether the operations on topics and on the cluster are told, and the controller, which may be another one with the same image.
type Kind = (i16, (bool, bool), i32);

impl MetadataCache {
    /// The body for an image, of a kind; `encode` makes it when it isn't there. Others wait meanwhile, rather than to make it too.
    pub(crate) fn body<E>(
        &self,
        image: &Arc<MetadataImage>,
        kind: Kind,
        encode: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let mut bodies = self.0.lock();
        if !bodies.image.as_ref().is_some_and(|i| Arc::ptr_eq(i, image)) {
            *bodies = Bodies {
                image: Some(Arc::clone(image)),
                by_kind: BTreeMap::new(),
            };
        }
        if let Some(body) = bodies.by_kind.get(&kind) {
            return Ok(body.clone());
        }
        let body = encode()?;
        bodies.by_kind.insert(kind, body.clone());
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(
        cache: &MetadataCache,
        image: &Arc<MetadataImage>,
        version: i16,
        made: &mut u32,
    ) -> Bytes {
        let encode = || {
            *made += 1;
            Ok::<_, ()>(Bytes::from(made.to_string()))
        };
        cache
            .body(image, (version, (false, false), 1), encode)
            .unwrap()
    }

    #[test]
    fn a_body_is_made_once_for_each_version_and_anew_when_metadata_changed() {
        let (cache, mut made) = (MetadataCache::default(), 0);
        let before = Arc::new(MetadataImage::default());
        let first = ask(&cache, &before, 9, &mut made);
        assert_eq!(ask(&cache, &before, 9, &mut made), first);
        assert_ne!(ask(&cache, &before, 12, &mut made), first);
        assert_eq!(made, 2);
        let after = Arc::new(MetadataImage::default());
        assert_ne!(ask(&cache, &after, 9, &mut made), first);
        assert_eq!(made, 3);
        let under_another =
            cache.body(&after, (9, (false, false), 2), || Ok::<_, ()>(Bytes::new()));
        assert_eq!(under_another, Ok(Bytes::new()));
    }

    #[test]
    fn what_can_not_be_made_is_not_kept() {
        let cache = MetadataCache::default();
        let image = Arc::new(MetadataImage::default());
        assert_eq!(
            cache.body(&image, (1, (false, false), 1), || Err("no")),
            Err("no")
        );
        assert_eq!(
            cache.body(&image, (1, (false, false), 1), || Ok::<_, ()>(Bytes::new())),
            Ok(Bytes::new())
        );
    }
}
