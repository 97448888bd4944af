//! Buckets: S3, Google Cloud Storage and Azure, as the crate `object_store` signs their requests and reads their lists.
//!
//! Credentials come from the environment. Without any a request goes unsigned, as public buckets want it: a machine of
//! the cloud is asked for its own only on request (`GMLAKE_INSTANCE_CREDENTIALS=1`), because elsewhere there is no
//! answer.
//!
//! The crate is written for many transfers in one thread. Here a thread has one, so that its requests simply block.

use std::env;
use std::error::Error as _;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{
    ClientOptions, Error, GetOptions, GetRange, ObjectMeta, ObjectStore, RetryConfig,
};

use super::cause::{Cause, Failure};
use super::store::{Entry, Part, Store};
use super::wire;
use gmlake_core::units::{Bytes, MIB};

/// The longest answer that is not part of a file: a page of a listing, a token.
const PAGE: Bytes = 64 * MIB;

struct Bucket {
    store: Box<dyn ObjectStore>,
    access: String,
}

/// The bucket, and the key in it.
pub(super) fn cut(rest: &str) -> Option<(&str, &str)> {
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    (!bucket.is_empty()).then_some((bucket, key))
}

/// `AWS_ACCESS_KEY_ID` and the others that Amazon's own programs know.
pub(super) fn s3(bucket: &str) -> Result<Arc<dyn Store>, Failure> {
    let has_credentials = is_any_set(&[
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ]);
    let builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_http_connector(Wire)
        .with_retry(once())
        .with_skip_signature(!has_credentials);
    opened(builder.build(), has_credentials, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
}

/// `GOOGLE_APPLICATION_CREDENTIALS` and its like, or what `gcloud auth application-default login` wrote.
pub(super) fn gs(bucket: &str) -> Result<Arc<dyn Store>, Failure> {
    let by_gcloud = env::home_dir().is_some_and(|home| {
        home.join(".config/gcloud/application_default_credentials.json").exists()
    });
    let has_credentials = by_gcloud
        || is_any_set(&[
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_SERVICE_ACCOUNT",
            "GOOGLE_SERVICE_ACCOUNT_PATH",
            "GOOGLE_SERVICE_ACCOUNT_KEY",
        ]);
    let builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(bucket)
        .with_http_connector(Wire)
        .with_retry(once())
        .with_skip_signature(!has_credentials);
    opened(builder.build(), has_credentials, "GOOGLE_APPLICATION_CREDENTIALS")
}

/// `AZURE_STORAGE_ACCOUNT_NAME` with one of the keys.
pub(super) fn az(container: &str) -> Result<Arc<dyn Store>, Failure> {
    if !is_any_set(&["AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_USE_EMULATOR"]) {
        let problem = "no storage account is named".to_owned();
        let remedy = "set AZURE_STORAGE_ACCOUNT_NAME".to_owned();
        return Err(Cause::Settings { problem, remedy }.into());
    }
    let has_credentials = is_any_set(&[
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCESS_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_TOKEN",
        "AZURE_STORAGE_USE_EMULATOR",
        "AZURE_CLIENT_SECRET",
        "AZURE_FEDERATED_TOKEN_FILE",
        "AZURE_USE_AZURE_CLI",
    ]);
    let builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(container)
        .with_http_connector(Wire)
        .with_retry(once())
        .with_skip_signature(!has_credentials);
    opened(builder.build(), has_credentials, "AZURE_STORAGE_ACCOUNT_KEY")
}

fn is_any_set(names: &[&str]) -> bool {
    let is_set = |name: &&str| env::var_os(name).is_some_and(|text| !text.is_empty());
    is_set(&"GMLAKE_INSTANCE_CREDENTIALS") || names.iter().any(is_set)
}

/// [`wire`] knows when to try again.
fn once() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn opened<S: ObjectStore>(
    built: object_store::Result<S>,
    has_credentials: bool,
    variables: &str,
) -> Result<Arc<dyn Store>, Failure> {
    let incomplete = |error: Error| {
        let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        let problem = format!("the settings in the environment do not fit together: {why}");
        Cause::Settings { problem, remedy: format!("set {variables}") }
    };
    let store: Box<dyn ObjectStore> = Box::new(built.map_err(incomplete)?);
    let access = match has_credentials {
        true => "check that these credentials may read it".to_owned(),
        false => format!("there are no credentials: set {variables}"),
    };
    Ok(Arc::new(Bucket { store, access }))
}

impl Store for Bucket {
    fn part(
        &self,
        key: &str,
        range: Range<Bytes>,
        version: &str,
        _: Bytes,
    ) -> Result<Part, Failure> {
        let key = path(key)?;
        let if_match = Some(version.to_owned()).filter(|version| version.starts_with('"'));
        let range = Some(GetRange::Bounded(range));
        let options = GetOptions { range, if_match, ..GetOptions::default() };
        blocking(async {
            let got = self.store.get_opts(&key, options).await?;
            let (start, size, version) = (got.range.start, got.meta.size, version_of(&got.meta));
            let changed = Some(got.meta.last_modified.into());
            let bytes = got.bytes().await?.to_vec();
            Ok(Part { start, bytes, size, version, changed })
        })
    }

    fn files(&self, folder: &str, is_deep: bool) -> Result<Vec<Entry>, Failure> {
        let prefix = path(folder)?;
        let found: Vec<ObjectMeta> = blocking(async {
            match is_deep {
                true => self.store.list(Some(&prefix)).try_collect().await,
                false => Ok(self.store.list_with_delimiter(Some(&prefix)).await?.objects),
            }
        })?;
        let entry = |meta: ObjectMeta| Entry {
            version: version_of(&meta),
            changed: Some(meta.last_modified.into()),
            size: meta.size,
            key: meta.location.into(),
        };
        Ok(found.into_iter().map(entry).collect())
    }

    fn access(&self) -> String {
        self.access.clone()
    }
}

fn path(key: &str) -> Result<Path, Failure> {
    let path = Path::parse(key).ok().filter(|_| !format!("/{key}").contains("//"));
    let wrong = "not a key: it has an empty, . or .. name in it";
    path.ok_or_else(|| Cause::Other(wrong.to_owned()).into())
}

fn version_of(meta: &ObjectMeta) -> String {
    meta.e_tag.clone().unwrap_or_else(|| meta.last_modified.to_rfc3339())
}

/// Runs what the crate wants awaited in this thread.
fn blocking<T>(work: impl Future<Output = object_store::Result<T>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|error| Cause::Other(error.to_string()))?;
    runtime.block_on(work).map_err(failure)
}

/// What went wrong on the wire, at the bottom of what the crate says.
fn failure(error: Error) -> Failure {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(error) = cause {
        if let Some(failure) = error.downcast_ref::<Failure>() {
            return failure.clone();
        }
        cause = error.source();
    }
    Cause::Other(format!("it cannot be read: {error}")).into()
}

/// The crate's requests, sent by us.
#[derive(Debug)]
struct Wire;

impl HttpConnector for Wire {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Self))
    }
}

#[async_trait]
impl HttpService for Wire {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let body = body.as_bytes().map(|bytes| bytes.to_vec()).unwrap_or_default();
        let request = ureq::http::Request::from_parts(parts, body);
        let answer = wire::send(&request, PAGE, false);
        // Of the wrong kind to be tried again.
        answer
            .map(|answer| answer.map(Into::into))
            .map_err(|failure| HttpError::new(HttpErrorKind::Decode, failure))
    }
}
