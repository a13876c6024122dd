/** Checks a proof of placement against public keys, a saved reply and, if available, the body of its request. */
import {
  PROOF_ALGORITHM,
  PROOF_ISSUER,
  PROOF_TYPE,
  type ProofStatement,
  sha256,
} from '../../../protocol/management/proof.ts'
import type { SavedReply } from './saved-reply.ts'

/** A public key in the form of a JWK set. */
export interface ProofJwk {
  readonly kty: 'OKP'
  readonly crv: 'Ed25519'
  readonly x: string
}

/** The statement of a proof, and the id of its key. */
export interface CheckedProof {
  readonly statement: ProofStatement
  readonly kid: string
}

/** The proof is not valid, or does not match the reply or the request; the message contains the reason. */
export class ProofFault extends Error {
  override readonly name = 'ProofFault'
}

/** The Ed25519 keys of a JWK set, only their public parts; null: it is not a key set. */
export function publicKeysOf(set: unknown): readonly ProofJwk[] | null {
  const { keys } = Object(set) as { keys?: unknown }
  if (!Array.isArray(keys)) return null
  return keys.flatMap(key => {
    const { kty, crv, x } = Object(key) as Record<string, unknown>
    return kty === 'OKP' && crv === 'Ed25519' && typeof x === 'string' ? [{ kty, crv, x }] : []
  })
}

/** @param body of the request; null: it is not checked. Rejects with ProofFault. */
export async function checkProof(
  reply: SavedReply,
  keys: readonly ProofJwk[],
  body: Uint8Array | null,
): Promise<CheckedProof> {
  const checked = await readProof(reply.proof, keys)
  const { answer, request } = checked.statement
  if (answer.of === 'events' && !reply.isStream) {
    throw new ProofFault('the proof is for a stream: save all events of the stream exactly as they arrived')
  }
  if (reply.digest(answer.of) !== answer.sha256)
    throw new ProofFault('the answer is not the one that was signed')
  if (reply.later > 0) {
    throw new ProofFault(
      `events that no proof covers follow the one with the proof: ${reply.later}; do not rely on them`,
    )
  }
  if (body !== null && sha256(body) !== request.sha256) {
    throw new ProofFault(
      'the request is not the one that was signed: its bytes must be exactly those that were sent (curl -d drops line ends, --data-binary does not)',
    )
  }
  return checked
}

async function readProof(proof: string, keys: readonly ProofJwk[]): Promise<CheckedProof> {
  const { calculateJwkThumbprint, compactVerify, decodeProtectedHeader, importJWK } = await import('jose')
  const kid = kidOf(() => decodeProtectedHeader(proof))
  const names = await Promise.all(keys.map(key => calculateJwkThumbprint(key)))
  const key = keys[names.indexOf(kid)]
  if (key === undefined)
    throw new ProofFault(`none of the given keys signed it (it was signed with key ${kid})`)
  const verified = await compactVerify(proof, await importJWK(key, PROOF_ALGORITHM), {
    algorithms: [PROOF_ALGORITHM],
  }).catch(() => {
    throw new ProofFault('its signature is not valid')
  })
  if (verified.protectedHeader.typ !== PROOF_TYPE) throw new ProofFault('it was signed for another purpose')
  const statement = JSON.parse(new TextDecoder().decode(verified.payload)) as ProofStatement
  if (statement.iss !== PROOF_ISSUER) throw new ProofFault('it was signed for another purpose')
  return { statement, kid }
}

/** The key id in an EdDSA header. Any other algorithm is refused before anything is verified. */
function kidOf(read: () => { alg?: string; kid?: string }): string {
  try {
    const { alg, kid } = read()
    if (alg !== PROOF_ALGORITHM) throw new ProofFault(`its algorithm is not ${PROOF_ALGORITHM}`)
    if (typeof kid !== 'string' || !/^[\w-]{43}$/.test(kid)) throw new ProofFault('its header names no key')
    return kid
  } catch (error) {
    if (error instanceof ProofFault) throw error
    throw new ProofFault('it is not a signed statement')
  }
}
