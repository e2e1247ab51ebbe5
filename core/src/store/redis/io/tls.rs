//! TLS: the configuration, which is made once for all connections of a store, and an encrypted session.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
};

use crate::error::{Error, Result};
use crate::process::fork::PerProcess;
use crate::process::log::{Log, WarningKind};
use crate::store::url::{Certificates, Endpoints};

/// The TLS configuration of a store.
pub(crate) struct TlsConfig {
    config: ClientConfig,
    /// The same configuration with resumable sessions. A lock guards them, so they belong to one process.
    of_process: PerProcess<Arc<ClientConfig>>,
}

impl TlsConfig {
    /// The configuration of a store, or `None` if it does not encrypt its connections.
    ///
    /// # Errors
    /// `config_invalid` for files that hold no certificates or keys.
    pub(crate) fn of(endpoints: &Endpoints, log: &Log) -> Result<Option<Self>> {
        let Some(certificates) = &endpoints.certificates else { return Ok(None) };
        let config = config(certificates)?;
        if certificates.unverified {
            log.warn_once(WarningKind::Unverified, || {
                format!(
                    "the certificate of {} is not verified (ssl_cert_reqs=none): any server in between can read and change \
                     the traffic, the password too. Name the authority with ssl_ca_certs instead",
                    endpoints.shown
                )
            });
        }
        Ok(Some(Self { config, of_process: PerProcess::new() }))
    }

    /// A session with a server, before its handshake.
    pub(crate) fn session(&self, host: &str) -> io::Result<Session> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let with_sessions = || {
            let mut config = self.config.clone();
            config.resumption = Resumption::default();
            Arc::new(config)
        };
        let config = self.of_process.with(with_sessions, Arc::clone);
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        Ok(Session(Box::new(connection)))
    }
}

/// Encrypts and decrypts for one connection. It does no I/O.
pub(crate) struct Session(Box<ClientConnection>);

impl Session {
    pub(crate) fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// True if encrypted bytes wait to be written.
    pub(crate) fn wants_write(&self) -> bool {
        self.0.wants_write()
    }

    /// Writes encrypted bytes to the server.
    pub(crate) fn write_to(&mut self, server: &mut dyn Write) -> io::Result<usize> {
        self.0.write_tls(server)
    }

    /// Reads encrypted bytes from the server. Call [`Session::decrypt`] after it.
    pub(crate) fn read_from(&mut self, server: &mut dyn Read) -> io::Result<usize> {
        self.0.read_tls(server)
    }

    /// Decrypts the bytes that were read.
    pub(crate) fn decrypt(&mut self) -> io::Result<()> {
        self.0.process_new_packets().map(drop).map_err(|error| explained(&error))
    }

    /// True if there is data to take, or if the bytes that were read are wrong.
    pub(crate) fn has_decrypted(&mut self) -> bool {
        self.0.process_new_packets().map_or(true, |state| state.plaintext_bytes_to_read() > 0)
    }

    /// True if the bytes that were read are valid, end nothing, and hold no data.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let state = self.0.process_new_packets();
        state.is_ok_and(|state| state.plaintext_bytes_to_read() == 0 && !state.peer_has_closed())
    }

    /// Takes decrypted data.
    pub(crate) fn read(&mut self, data: &mut [u8]) -> io::Result<usize> {
        self.0.reader().read(data)
    }

    /// Encrypts data, and returns how much of it.
    pub(crate) fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0.writer().write(data)
    }
}

/// An error with advice, if there is any for it.
fn explained(error: &rustls::Error) -> io::Error {
    let certificate = |what: &str| format!("its certificate is {what}");
    let why = match error {
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature | CertificateError::Other(_),
        ) => {
            certificate("signed by itself or by an unknown authority: name the file of its authority with ssl_ca_certs")
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => certificate("for another name than the host of the store URL: name the host as the certificate does"),
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            certificate("out of date: renew it, or correct the clock of this machine")
        }
        rustls::Error::InvalidMessage(_) => {
            "it does not speak TLS there: begin the store URL with redis:// instead of rediss://, or give the TLS port"
                .to_owned()
        }
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateUnknown,
        ) => "it accepts no client without a certificate that it knows: name yours with ssl_certfile and ssl_keyfile"
            .to_owned(),
        other => format!("TLS failed: {other}"),
    };
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The configuration of connections that are encrypted with these certificates.
pub(crate) fn config(certificates: &Certificates) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match &certificates.authority {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(pem) => {
            for certificate in chain("ssl_ca_certs", pem)? {
                roots.add(certificate).map_err(|error| unusable("ssl_ca_certs", &error))?;
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::config(format!("TLS cannot be used: {error}")))?;
    let builder = if certificates.unverified {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
    } else {
        builder.with_root_certificates(roots)
    };
    Ok(match &certificates.client {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| not_pem("ssl_keyfile", &error))?;
            builder
                .with_client_auth_cert(chain("ssl_certfile", cert)?, key)
                .map_err(|error| unusable("ssl_certfile", &error))?
        }
    })
}

/// Accepts every certificate (`ssl_cert_reqs=none`), but still checks that the server has its key.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn chain(option: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let chain = CertificateDer::pem_slice_iter(pem).collect::<std::result::Result<Vec<_>, _>>();
    match chain {
        Ok(chain) if chain.is_empty() => {
            Err(Error::config(format!("the file of {option} holds no certificate: it must be PEM")))
        }
        Ok(chain) => Ok(chain),
        Err(error) => Err(not_pem(option, &error)),
    }
}

/// Does not show the error itself: the part of the file in it may be the private key.
fn not_pem(option: &str, error: &pem::Error) -> Error {
    let why = match error {
        pem::Error::NoItemsFound => "it has no PEM section of the kind that belongs there",
        _ => "it is not PEM, where a BEGIN line and an END line enclose each section",
    };
    unusable(option, &why)
}

fn unusable(option: &str, error: &dyn std::fmt::Display) -> Error {
    Error::config(format!("the file of {option} cannot be used: {error}"))
}
