//! The sender over real sockets: which targets it dials, what it puts on the wire, and when it stops waiting.

mod deadlines;
mod destinations;
mod pool;
mod wire;

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use countersign::send::{
    Answer, Exception, Failure, Guard, HttpTransport, HttpTransportBuilder, Outgoing, Policy, Resolve, ResolveError,
    ResolveFuture, Transport,
};
use http::{HeaderMap, Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::support::Calls;

/// A resolver that knows what it was told: for each name its answers, the last of them for ever.
#[derive(Clone, Debug, Default)]
struct Names {
    answers: Arc<Mutex<HashMap<String, Vec<Vec<IpAddr>>>>>,
    lookups: Calls,
}

impl Names {
    /// Comma between addresses, `=>` between one look-up and the next.
    fn with(self, name: &str, answers: &str) -> Self {
        let addresses = |text: &str| text.split(',').map(|one| one.trim().parse().expect(one)).collect();
        let answers = answers.split("=>").map(addresses).collect();
        self.answers.lock().expect("no panic in here").insert(name.to_owned(), answers);
        self
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, name: &'a str) -> ResolveFuture<'a> {
        self.lookups.count();
        let mut all = self.answers.lock().expect("no panic in here");
        let answer = match all.get_mut(name) {
            Some(answers) if answers.len() > 1 => Ok(answers.remove(0)),
            Some(answers) => Ok(answers[0].clone()),
            None => Err(ResolveError::new("no such name")),
        };
        Box::pin(async move { answer })
    }
}

/// Everything is allowed, plain http too: for tests of what comes after the policy.
fn anything() -> Policy {
    Policy::new().allow_http().dangerous_allow_private_targets()
}

/// Plain http too, and these addresses of this machine.
fn only(exceptions: &[&str]) -> Policy {
    let read = |text: &&str| text.parse::<Exception>().expect(text);
    exceptions.iter().map(read).fold(Policy::new().allow_http(), Policy::with_exception)
}

fn builder(guard: Guard) -> HttpTransportBuilder {
    HttpTransport::builder(guard).tls(trusting(&identity(&["unused.example"])))
}

fn transport(policy: Policy) -> HttpTransport {
    builder(Guard::new(policy)).build().expect("a transport")
}

fn outgoing(url: impl Into<String>) -> Outgoing {
    Outgoing::new(url, HeaderMap::new(), "{}")
}

async fn send(transport: &HttpTransport, outgoing: Outgoing) -> Result<Answer, Failure> {
    // Every limit of an attempt is far below this one.
    let sent = tokio::time::timeout(Duration::from_secs(60), transport.send(outgoing));
    sent.await.expect("the attempt ends by its own deadlines")
}

/// A certificate with its key.
struct Identity {
    certificate: rustls::pki_types::CertificateDer<'static>,
    key: Vec<u8>,
}

fn identity(names: &[&str]) -> Identity {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    Identity { certificate: made.cert.der().clone(), key: made.signing_key.serialize_der() }
}

fn trusting(identity: &Identity) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(identity.certificate.clone()).expect("a certificate");
    ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

fn acceptor(identity: &Identity, protocols: &[&[u8]]) -> TlsAcceptor {
    let key = PrivatePkcs8KeyDer::from(identity.key.clone()).into();
    let mut config = ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate.clone()], key)
        .expect("a certificate");
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Arc::new(config).into()
}

/// A request as a receiver got it.
#[derive(Clone, Debug)]
struct Seen {
    version: Version,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

/// A receiver: counts connections, keeps requests, answers each by a function of it.
#[derive(Clone, Debug)]
struct Receiver {
    address: SocketAddr,
    connections: Calls,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Receiver {
    async fn new(answer: impl Fn(&Seen) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static) -> Self {
        Self::on("127.0.0.1:0", None, answer).await
    }

    /// Answers 200.
    async fn ok() -> Self {
        Self::new(|_| Response::new(Full::default())).await
    }

    async fn on(
        address: &str,
        tls: Option<TlsAcceptor>,
        answer: impl Fn(&Seen) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static,
    ) -> Self {
        let (listener, address) = listen(address).await;
        let receiver = Self { address, connections: Calls::default(), seen: Arc::default() };
        let accepting = receiver.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepting.connections.count();
                let (receiver, tls, answer) = (accepting.clone(), tls.clone(), answer.clone());
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                receiver.serve(stream, answer).await;
                            }
                        }
                        None => receiver.serve(stream, answer).await,
                    }
                });
            }
        });
        receiver
    }

    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        answer: impl Fn(&Seen) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static,
    ) {
        let service = hyper::service::service_fn(|request: Request<Incoming>| {
            let (answer, all) = (answer.clone(), Arc::clone(&self.seen));
            async move {
                let (head, body) = request.into_parts();
                let Ok(body) = body.collect().await else { return Ok(Response::new(Full::default())) };
                let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
                let seen = Seen { version: head.version, path, headers: head.headers, body: body.to_bytes() };
                let response = answer(&seen);
                all.lock().expect("no panic in here").push(seen);
                Ok::<_, Infallible>(response)
            }
        });
        let _closed = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no panic in here").clone()
    }

    fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }
}

async fn listen(address: &str) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(address).await.expect("a socket");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

/// A receiver below HTTP: what is done with each connection, numbered from 1.
async fn raw<F: Future<Output = ()> + Send>(
    serve: impl Fn(TcpStream, usize) -> F + Clone + Send + Sync + 'static,
) -> (SocketAddr, Calls) {
    let (listener, address) = listen("127.0.0.1:0").await;
    let connections = Calls::default();
    let counted = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (serve, number) = (serve.clone(), counted.count());
            tokio::spawn(async move { serve(stream, number).await });
        }
    });
    (address, connections)
}

/// Reads a request's head and as much of its body as came along.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    while !text.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => text.extend_from_slice(&buffer[..count]),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Reads until the other side is gone.
async fn drain(stream: &mut (impl AsyncRead + Unpin)) {
    let mut buffer = vec![0; 64 * 1024];
    while matches!(stream.read(&mut buffer).await, Ok(count) if count > 0) {}
}
