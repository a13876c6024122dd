/**
 * Signed proofs of placement: on request, a signed statement in `gateway_metadata` that covers what the client
 * receives. Also GET /proof-keys. Inference requests without the header X-Gateway-Proof run none of this code.
 */
import { createHash, type Hash } from 'node:crypto'
import { type Clock, unixSeconds } from '../base/clock.ts'
import { GatewayError, RETRY_AFTER_SECONDS } from '../base/errors.ts'
import type { Log } from '../base/log/log.ts'
import { whenReady } from '../base/maybe-promise.ts'
import type { FrameWriter } from '../dialects/dialect.ts'
import type { AttemptRecord, Exchange, Witness } from '../exchange/exchange.ts'
import { DATA_REGIONS } from '../protocol/data-regions.ts'
import type { StreamEvent } from '../protocol/events.ts'
import {
  digestLine,
  type PlacementWish,
  PROOF_ISSUER,
  type ProofCall,
  type ProofScope,
  proofPosition,
  replyDigest,
  SHARED_CREDENTIAL,
} from '../protocol/management/proof.ts'
import { retainsNothing, staysInRegion } from '../providers/credentials/catalog.ts'
import { ProofKeyError, type ProofKeys, type ProofRing } from '../providers/credentials/proof-keys.ts'
import type { ApiRequest, Handler } from './operation.ts'

/** The header that requests a proof. */
export const PROOF_HEADER = 'x-gateway-proof'

export interface ProofDeps {
  readonly keys: Pick<ProofKeys, 'current'>
  readonly clock: Clock
  readonly log: Log
  /** The region of this gateway. */
  readonly region: string
}

/** True if the header requests a proof. @throws GatewayError for a value that is neither yes nor no */
function wantsProof(headers: ReadonlyMap<string, string>): boolean {
  const value = (headers.get(PROOF_HEADER) ?? '').toLowerCase()
  if (value === 'true') return true
  if (value === '' || value === 'false') return false
  throw new GatewayError('invalid_request', 'X-Gateway-Proof: must be true or false')
}

/** @throws GatewayError if a proof is requested for an operation without proofs */
export function refuseProof(headers: ReadonlyMap<string, string>, feature: string): void {
  if (wantsProof(headers)) {
    throw new GatewayError('invalid_request', `X-Gateway-Proof: ${feature} cannot have a proof`)
  }
}

/** The proof that a request asks for; null: none. A promise only if keys must be read first. */
export function openProof(
  deps: ProofDeps,
  { headers, bodyDigest }: Pick<ApiRequest, 'headers' | 'bodyDigest'>,
  withMetadata: boolean,
): RequestProof | null | Promise<RequestProof | null> {
  if (bodyDigest === null || !wantsProof(headers)) return null
  if (!withMetadata) {
    throw new GatewayError('invalid_request', 'X-Gateway-Proof: needs X-Gateway-Metadata: enabled')
  }
  return whenReady(ringOf(deps), ring => new RequestProof(deps, ring, bodyDigest))
}

/** The public keys, as a JWK set. */
export function listProofKeys(deps: ProofDeps): Handler {
  return async (_, reply) => {
    const { keys } = await ringOf(deps)
    reply.json(200, { keys })
  }
}

/** @throws (or rejects with) GatewayError if there are no keys */
function ringOf({ keys, log }: ProofDeps): ProofRing | Promise<ProofRing> {
  const ring = keys.current()
  if (!(ring instanceof Promise)) return ring
  return ring.catch((cause: unknown) => {
    if (!(cause instanceof ProofKeyError)) throw cause
    log.notice('proof', 'there is no key for signing proofs; create one, or set proof.keyFile', {
      reason: cause.message,
    })
    throw new GatewayError(
      'service_unavailable',
      'Proofs cannot be signed at the moment: the gateway has no signing key (setting proof.keyFile)',
      {
        retryAfterSeconds: RETRY_AFTER_SECONDS.operator,
        cause,
      },
    )
  })
}

/** The proof of one request. */
export class RequestProof implements Witness {
  readonly #deps: ProofDeps
  readonly #ring: ProofRing
  readonly #requestDigest: string
  /** The first exchange belongs to the request itself. */
  readonly #exchanges: Exchange[] = []

  constructor(deps: ProofDeps, ring: ProofRing, requestDigest: string) {
    this.#deps = deps
    this.#ring = ring
    this.#requestDigest = requestDigest
  }

  observe(exchange: Exchange): void {
    this.#exchanges.push(exchange)
  }

  /** Adds the proof to a complete reply. */
  reply(body: unknown): unknown {
    const position = proofPosition(body)
    return position === null ? body : position.withProof(this.sign(replyDigest(position.reply), 'reply'))
  }

  /** Wraps a frame writer so that the stream ends with the proof. */
  frames(writer: FrameWriter, scope: ProofScope): FrameWriter {
    return scope === 'reply' ? new ProvenReply(writer, this) : new ProvenEvents(writer, this)
  }

  /** Signs the calls so far. */
  sign(answerDigest: string, scope: ProofScope): string {
    const [exchange] = this.#exchanges
    if (exchange === undefined) throw new Error('a proof without an exchange')
    const last = exchange.attempts.at(-1)?.endpoint
    return this.#ring.sign({
      iss: PROOF_ISSUER,
      iat: unixSeconds(this.#deps.clock),
      jti: exchange.id,
      model: last?.modelId ?? '',
      provider: last?.provider.name ?? '',
      gateway_region: this.#deps.region,
      asked: wishOf(exchange),
      calls: this.#exchanges.flatMap(callsOf),
      request: { sha256: this.#requestDigest },
      answer: { sha256: answerDigest, of: scope },
    })
  }
}

/** A stream that ends with its proof. */
abstract class ProvenWriter implements FrameWriter {
  protected writer: FrameWriter
  protected readonly proof: RequestProof

  constructor(writer: FrameWriter, proof: RequestProof) {
    this.writer = writer
    this.proof = proof
  }

  get tellsOverflow(): boolean {
    return this.writer.tellsOverflow === true
  }

  wrapInner(wrap: (inner: FrameWriter) => FrameWriter): FrameWriter {
    this.writer = wrap(this.writer)
    return this
  }

  abstract write(event: StreamEvent): string

  end(): string {
    return this.writer.end()
  }

  failure(...failure: Parameters<FrameWriter['failure']>): string {
    return this.writer.failure(...failure)
  }
}

/** A stream whose last event contains the whole reply. */
class ProvenReply extends ProvenWriter {
  write(event: StreamEvent): string {
    const frames = this.writer.write(event)
    if (!('response' in event)) return frames
    return rewriteFrames(frames, value => {
      const position = proofPosition(value)
      return position === null
        ? null
        : position.withProof(this.proof.sign(replyDigest(position.reply), 'reply'))
    })
  }
}

/** A stream whose events together are the reply. */
class ProvenEvents extends ProvenWriter {
  readonly #hash: Hash = createHash('sha256')
  #isSigned = false

  write(event: StreamEvent): string {
    return this.#isSigned ? this.writer.write(event) : rewriteFrames(this.writer.write(event), this.#add)
  }

  readonly #add = (value: unknown): unknown => {
    const position = proofPosition(value)
    this.#hash.update(digestLine(position?.withProof(null) ?? value))
    if (position === null) return null
    this.#isSigned = true
    return position.withProof(this.proof.sign(this.#hash.digest('hex'), 'events'))
  }
}

/** Frames of JSON, each of which `change` may replace; null: unchanged. JSON contains no line ends. */
function rewriteFrames(frames: string, change: (value: unknown) => unknown): string {
  let result = ''
  for (const frame of frames.split('\n\n')) {
    if (frame === '') continue
    const dataStart = frame.startsWith(DATA_PREFIX)
      ? DATA_PREFIX.length
      : frame.indexOf(`\n${DATA_PREFIX}`) + 1 + DATA_PREFIX.length
    const replacement = change(JSON.parse(frame.slice(dataStart)))
    result +=
      replacement === null ? `${frame}\n\n` : `${frame.slice(0, dataStart)}${JSON.stringify(replacement)}\n\n`
  }
  return result
}

const DATA_PREFIX = 'data: '

// The places to which the data of an exchange was sent.

/** The calls that were sent to a provider, including calls that failed or that another one overtook. */
export function callsOf({ id, attempts }: Pick<Exchange, 'id' | 'attempts'>): ProofCall[] {
  return attempts.filter(({ isStarted }) => isStarted).map(attempt => callOf(id, attempt))
}

function callOf(id: string, { endpoint, credential, status }: AttemptRecord): ProofCall {
  return {
    id,
    model: endpoint.modelId,
    provider: endpoint.provider.name,
    region: DATA_REGIONS.find(region => staysInRegion(region, endpoint, credential)) ?? null,
    zdr: retainsNothing(endpoint, credential),
    trains: endpoint.trains === true && credential?.declaredZdr !== true,
    credential: credential?.label ?? SHARED_CREDENTIAL,
    status,
  }
}

export function wishOf({ dataRegion, request }: Pick<Exchange, 'dataRegion' | 'request'>): PlacementWish {
  return {
    data_region: dataRegion,
    zdr: request.provider?.zdr === true,
    data_collection: request.provider?.data_collection === 'deny' ? 'deny' : 'allow',
  }
}
