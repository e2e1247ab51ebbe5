//! The TLS configuration: made once, used by every connection of a store.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::{Error, Result};
use crate::store::url::Certificates;

/// # Errors
/// `config_invalid` for files that hold no certificates or keys.
pub(crate) fn config(certificates: &Certificates) -> Result<Arc<ClientConfig>> {
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
    let config = match &certificates.client {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unusable("ssl_keyfile", &error))?;
            builder
                .with_client_auth_cert(chain("ssl_certfile", cert)?, key)
                .map_err(|error| unusable("ssl_certfile", &error))?
        }
    };
    Ok(Arc::new(config))
}

/// Believes every certificate (`ssl_cert_reqs=none`). That the server has its key is still checked.
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
        Err(error) => Err(unusable(option, &error)),
    }
}

fn unusable(option: &str, error: &dyn std::fmt::Display) -> Error {
    Error::config(format!("the file of {option} cannot be used: {error}"))
}
