/** Google Vertex keys: the JSON of a service account, with the region and the bucket to use. Pure. */
import { createPrivateKey } from 'node:crypto'
import { KeyFields, keyError, parseKeyJson } from './key-json.ts'

export interface VertexKey {
  readonly kind: 'vertex'
  readonly clientEmail: string
  /** PEM of an RSA key. */
  readonly privateKey: string
  /** Identifies the key at the provider; not secret. */
  readonly privateKeyId: string | null
  /** Part of the provider's paths. */
  readonly projectId: string
  /** `global`, a multi-region or a region of the provider; part of its host name. */
  readonly location: string
  /** Bucket for the files of batches. */
  readonly bucket: string | null
  readonly region: null
  readonly secrets: readonly string[]
}

/** The only value in Google's key files. Assertions are always sent to the address in the provider's row. */
const VERTEX_TOKEN_URI = 'https://oauth2.googleapis.com/token'

const EMAIL = /^[A-Za-z0-9._-]{1,128}@(?:[a-z0-9-]{1,64}\.){1,8}gserviceaccount\.com$/
/** Some old projects belong to a domain: `example.com:project`. */
const PROJECT = /^(?:[a-z0-9.-]{1,64}:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$/
const LOCATION = /^[a-z]{2,24}(?:-[a-z]{2,24}\d{1,2})?$/
const BUCKET = /^(?:gs:\/\/)?[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$/
const KEY_ID = /^[A-Za-z0-9]{1,128}$/
const RSA_MIN_BITS = 2048
/**
 * Google creates keys of 2048 bits. The time of a signature grows with the cube of the length; with 16,384 bits it
 * takes seconds.
 */
const RSA_MAX_BITS = 4096

/** @throws GatewayError `invalid_request` that begins with `key: ` */
export function parseVertexKey(text: string): VertexKey {
  const fields = new KeyFields(parseKeyJson(text))
  fields.text('type', value => value === 'service_account', 'service_account')
  const privateKey = fields.text('private_key', value => value.length <= 16_384, 'an RSA key in PEM form')
  checkRsa(privateKey)
  // Both are in every key file of Google. Other values would send signed assertions or requests elsewhere.
  fields.optionalText('token_uri', value => value === VERTEX_TOKEN_URI, VERTEX_TOKEN_URI)
  fields.optionalText('universe_domain', value => value === 'googleapis.com', 'googleapis.com')
  return {
    kind: 'vertex',
    clientEmail: fields.text('client_email', EMAIL, 'the email address of a service account'),
    privateKey,
    privateKeyId: fields.optionalText('private_key_id', KEY_ID, 'the id of the key'),
    projectId: fields.text('project_id', PROJECT, 'the id of a project'),
    location: fields.optionalText('region', LOCATION, 'a region such as global or us-central1') ?? 'global',
    bucket: fields.optionalText('bucket', BUCKET, 'the name of a bucket')?.replace('gs://', '') ?? null,
    region: null,
    secrets: [privateKey.replace(/-----[A-Z ]{1,40}-----|\s+/g, '')],
  }
}

function checkRsa(pem: string): void {
  let bits: number | undefined
  try {
    const key = createPrivateKey(pem)
    if (key.asymmetricKeyType === 'rsa') bits = key.asymmetricKeyDetails?.modulusLength
  } catch {
    // Reported below. The library's message may quote the text.
  }
  if (bits === undefined || bits < RSA_MIN_BITS || bits > RSA_MAX_BITS) {
    throw keyError(`private_key must be an RSA key of ${RSA_MIN_BITS} to ${RSA_MAX_BITS} bits in PEM form`)
  }
}
