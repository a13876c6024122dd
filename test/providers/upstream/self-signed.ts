/** A key and a self-signed certificate, made at run time, so that no private key lies in the repository. */
import { generateKeyPairSync, randomBytes, sign } from 'node:crypto'

const SEQUENCE = 0x30
const SET = 0x31
const INTEGER = 0x02
const BIT_STRING = 0x03
const OCTET_STRING = 0x04
const OID = 0x06
const UTF8_STRING = 0x0c
const UTC_TIME = 0x17
const ECDSA_SHA256 = '2a8648ce3d040302'
const COMMON_NAME = '550403'
const SUBJECT_ALT_NAME = '551d11'

function der(tag: number, ...parts: Buffer[]): Buffer {
  const content = Buffer.concat(parts)
  const length =
    content.length < 0x80
      ? [content.length]
      : content.length < 0x100
        ? [0x81, content.length]
        : [0x82, content.length >> 8, content.length & 0xff]
  return Buffer.concat([Buffer.from([tag, ...length]), content])
}

const oid = (hex: string): Buffer => der(OID, Buffer.from(hex, 'hex'))

function pem(label: string, bytes: Buffer): string {
  return `-----BEGIN ${label}-----\n${bytes.toString('base64').replace(/.{64}(?!$)/g, '$&\n')}\n-----END ${label}-----\n`
}

/** Times as certificates write them: YYMMDDhhmmssZ. */
const LONG = { from: '200101000000Z', until: '491231235959Z' }

/** PEM key and certificate for DNS names and the address 127.0.0.1. */
export function selfSigned(
  names: readonly string[],
  withAddress: boolean,
  { from, until } = LONG,
): { key: string; cert: string } {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' })
  const algorithm = der(SEQUENCE, oid(ECDSA_SHA256))
  const name = der(
    SEQUENCE,
    der(SET, der(SEQUENCE, oid(COMMON_NAME), der(UTF8_STRING, Buffer.from('sluice test')))),
  )
  const alternatives = names.map(text => der(0x82, Buffer.from(text)))
  if (withAddress) alternatives.push(der(0x87, Buffer.from([127, 0, 0, 1])))
  const extension = der(SEQUENCE, oid(SUBJECT_ALT_NAME), der(OCTET_STRING, der(SEQUENCE, ...alternatives)))
  const serial = randomBytes(8)
  serial[0] = 0x01
  const body = der(
    SEQUENCE,
    der(0xa0, der(INTEGER, Buffer.from([2]))),
    der(INTEGER, serial),
    algorithm,
    name,
    der(SEQUENCE, der(UTC_TIME, Buffer.from(from)), der(UTC_TIME, Buffer.from(until))),
    name,
    publicKey.export({ type: 'spki', format: 'der' }),
    der(0xa3, der(SEQUENCE, extension)),
  )
  const signature = der(BIT_STRING, Buffer.from([0]), sign('sha256', body, privateKey))
  return {
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    cert: pem('CERTIFICATE', der(SEQUENCE, body, algorithm, signature)),
  }
}
