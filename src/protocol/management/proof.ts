/**
 * The signed proof of placement: its statements, and the part of a reply that it covers. Pure. The gateway signs it,
 * and `sluice verify` reads it; docs/proof.md explains how to check it without either.
 */
import { hash } from 'node:crypto'
import type { DataRegion } from '../data-regions.ts'
import { isObject } from '../json/schema.ts'

/** Type of the JWS, in its header: a signature for another purpose is not a proof. */
export const PROOF_TYPE = 'sluice-proof+jwt'
export const PROOF_ALGORITHM = 'EdDSA'
export const PROOF_ISSUER = 'sluice'

/** The credential of a call on the gateway's own key. */
export const SHARED_CREDENTIAL = 'shared'

/** One model call, which sent data to this provider. */
export interface ProofCall {
  /** Generation id of the answer, or of a call that the gateway made for it. */
  id: string
  model: string
  /** Display name. */
  provider: string
  /** The region that the provider, or the declaration of the BYOK credential, promises; null: none. */
  region: DataRegion | null
  /** True if the provider keeps no data. */
  zdr: boolean
  /** The provider may train on requests. */
  trains: boolean
  /** Masked label of a BYOK credential, or `shared`. */
  credential: string
  /** HTTP status of the provider; null: no reply. */
  status: number | null
}

/** The placement settings of the request. */
export interface PlacementWish {
  data_region: DataRegion | null
  zdr: boolean
  data_collection: 'allow' | 'deny'
}

/**
 * The bytes behind the digest of the answer. `reply`: the canonical JSON of the object with `gateway_metadata`.
 * `events`: the canonical JSON of each event in order, each with a line feed. Both without the proof itself.
 */
export type ProofScope = 'reply' | 'events'

export interface ProofStatement {
  iss: typeof PROOF_ISSUER
  /** Unix seconds. */
  iat: number
  /** Generation id of the answer. */
  jti: string
  model: string
  provider: string
  /** Setting `region`: the gateway's location. */
  gateway_region: string
  asked: PlacementWish
  calls: ProofCall[]
  /** SHA-256 of the received body, in hex. */
  request: { sha256: string }
  answer: { sha256: string; of: ProofScope }
}

/** JSON of RFC 8785: no blanks, and the members of objects in the order of their names in UTF-16. */
export function canonicalJson(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null'
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`
  const fields = value as Readonly<Record<string, unknown>>
  const members: string[] = []
  for (const name of Object.keys(fields).sort()) {
    if (fields[name] !== undefined) members.push(`${JSON.stringify(name)}:${canonicalJson(fields[name])}`)
  }
  return `{${members.join(',')}}`
}

type Fields = Readonly<Record<string, unknown>>

/** A reply or an event that has, or may get, a proof. */
interface ProofPosition {
  /** The object with `gateway_metadata`: the value, or its `response`. */
  readonly reply: Fields
  readonly metadata: Fields
  /** The value with this proof; null removes the proof. */
  withProof(proof: string | null): Fields
}

/** Finds the position of the proof in a reply or an event; null: it has no gateway metadata. */
export function proofPosition(value: unknown): ProofPosition | null {
  if (!isObject(value)) return null
  const { response } = value
  const isInner = isObject(response) && isObject(response['gateway_metadata'])
  const reply = isInner ? response : value
  const metadata = reply['gateway_metadata']
  if (!isObject(metadata)) return null
  return {
    reply,
    metadata,
    withProof(proof) {
      const { proof: _, ...otherMetadata } = metadata
      const signedReply = {
        ...reply,
        gateway_metadata: proof === null ? otherMetadata : { ...otherMetadata, proof },
      }
      return isInner ? { ...value, response: signedReply } : signedReply
    },
  }
}

/** Digest of a whole reply, for the scope `reply`. */
export function replyDigest(reply: Fields): string {
  return sha256(canonicalJson(proofPosition(reply)?.withProof(null) ?? reply))
}

/** The line of one event, for the scope `events`. */
export function digestLine(event: unknown): string {
  return `${canonicalJson(event)}\n`
}

export function sha256(content: string | Uint8Array): string {
  return hash('sha256', content, 'hex')
}
