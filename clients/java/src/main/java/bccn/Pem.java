package bccn;

import static java.nio.charset.StandardCharsets.US_ASCII;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.Signature;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.spec.InvalidKeySpecException;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;

/** Certificates and keys from PEM files, as those that run servers have them. */
final class Pem {
    private static final Pattern KEY = Pattern.compile("-----BEGIN PRIVATE KEY-----([^-]+)-----END");
    private static final String[] ALGORITHMS = {"RSA", "EC", "EdDSA"};
    private static final byte[] PROBE = {1};

    private Pem() {}

    /** Returns what TLS needs of these files, each of which may be null. */
    static SSLContext context(Path ca, Path cert, Path key) throws GeneralSecurityException, IOException {
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(cert == null ? null : keys(cert, key), ca == null ? null : trust(ca), null);
        return context;
    }

    private static KeyStore store() throws GeneralSecurityException, IOException {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        return store;
    }

    private static KeyManager[] keys(Path cert, Path key) throws GeneralSecurityException, IOException {
        KeyStore store = store();
        char[] password = {};
        PrivateKey own = privateKey(key);
        Certificate[] chain = certificates(cert);
        if (!belongs(own, chain[0])) {
            throw new KeyException(key + " is not the key of the certificate in " + cert);
        }
        store.setKeyEntry("own", own, password, chain);
        KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        factory.init(store, password);
        return factory.getKeyManagers();
    }

    private static TrustManager[] trust(Path ca) throws GeneralSecurityException, IOException {
        KeyStore store = store();
        int number = 0;
        for (Certificate certificate : certificates(ca)) {
            store.setCertificateEntry("ca" + number++, certificate);
        }
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        return factory.getTrustManagers();
    }

    private static Certificate[] certificates(Path file) throws GeneralSecurityException, IOException {
        ByteArrayInputStream text = new ByteArrayInputStream(Files.readAllBytes(file));
        Certificate[] found;
        try {
            found = CertificateFactory.getInstance("X.509").generateCertificates(text).toArray(Certificate[]::new);
        } catch (CertificateException e) {
            throw new CertificateException(file + " has no certificate that can be read: " + e.getMessage(), e);
        }
        if (found.length == 0) {
            throw new CertificateException(file + " has no certificate");
        }
        return found;
    }

    /** TLS does not look: the door would refuse the certificate. */
    private static boolean belongs(PrivateKey key, Certificate certificate) throws GeneralSecurityException {
        String algorithm = key.getAlgorithm();
        if (!algorithm.equals(certificate.getPublicKey().getAlgorithm())) {
            return false;
        }
        Signature signature = Signature.getInstance(
                algorithm.equals("RSA") ? "SHA256withRSA" : algorithm.equals("EC") ? "SHA256withECDSA" : "EdDSA");
        signature.initSign(key);
        signature.update(PROBE);
        byte[] signed = signature.sign();
        signature.initVerify(certificate.getPublicKey());
        signature.update(PROBE);
        return signature.verify(signed);
    }

    private static PrivateKey privateKey(Path file) throws GeneralSecurityException, IOException {
        Matcher found = KEY.matcher(Files.readString(file, US_ASCII));
        if (!found.find()) {
            throw new KeyException(file + " has no PRIVATE KEY; openssl pkcs8 -topk8 -nocrypt makes one of others");
        }
        PKCS8EncodedKeySpec spec = new PKCS8EncodedKeySpec(Base64.getMimeDecoder().decode(found.group(1)));
        for (String algorithm : ALGORITHMS) {
            try {
                return KeyFactory.getInstance(algorithm).generatePrivate(spec);
            } catch (InvalidKeySpecException e) {
                continue; // it is of another algorithm
            }
        }
        throw new KeyException(file + " has a private key of an unknown algorithm");
    }
}
