/**
 * The answer to an embeddings call, and the second target of Attempt: takes one reply and writes its vectors in the
 * form that the client wants. One instance per attempt; the client sees nothing before the reply is complete.
 */
import { GatewayError } from '../base/errors.ts'
import { parseFrame, record } from '../base/json.ts'
import type { EmbeddingsFormat } from '../formats/embeddings/format.ts'
import { type Vector, type VectorTerms, writeVector } from '../formats/embeddings/vector.ts'
import { VectorBody } from '../formats/embeddings/vector-body.ts'
import type { Decoder, Delta } from '../formats/format.ts'
import type { Attempt } from './turn/attempt.ts'
import type { AttemptTarget } from './turn/attempt-target.ts'

interface EmbeddingsAnswerDeps {
  readonly format: EmbeddingsFormat
  /** The required number of vectors. */
  readonly inputs: number
  readonly terms: VectorTerms
  /** Called when the reply is complete. */
  readonly onReply: () => void
}

/** Bytes of vectors written per turn of the event loop: two milliseconds of work. */
const TURN_BYTES = 256 * 1024

export class EmbeddingsAnswer implements AttemptTarget {
  /** Nothing is sent before the end. */
  readonly sink = null
  readonly body = new VectorBody()
  /** For each input in order, its vector as JSON. */
  readonly vectors: Buffer[] = []
  readonly #deps: EmbeddingsAnswerDeps
  #attempt: Attempt | null = null
  #providerVectors: readonly Vector[] = []
  #onDone: (() => void) | null = null
  /** Dimensions of the vectors so far; null before the first. */
  #dimensions: number | null = null
  #isClosed = false

  constructor(deps: EmbeddingsAnswerDeps) {
    this.#deps = deps
  }

  /** Call it before the attempt runs. */
  follow(attempt: Attempt): void {
    this.#attempt = attempt
  }

  /** Reads the document that `body` leaves. Vectors are not deltas: they arrive separately. */
  decoder(emit: (delta: Delta) => void): Decoder {
    return {
      frame: (_event, data) => {
        const document = record(parseFrame(data))
        if (document === null) {
          throw new GatewayError('provider_unavailable', 'The provider sent a reply that is not an object')
        }
        const { format, inputs, onReply } = this.#deps
        const { upstreamId, vectors, usage } = format.decode(document, inputs)
        this.#providerVectors = vectors.map(value => this.body.vector(value))
        onReply()
        emit({ kind: 'start', upstreamId, model: null })
        if (usage !== null) emit({ kind: 'usage', usage })
        emit({ kind: 'finish', reason: 'stop', native: null, serviceTier: null })
      },
      withheld: 0,
      // The single document is the whole reply.
      end: () => undefined,
    }
  }

  receive(): void {
    // Deltas have no content here.
  }

  end(done: () => void): void {
    this.#onDone = done
    this.#write()
  }

  close(): void {
    this.#isClosed = true
    this.#providerVectors = []
  }

  /** Writes some vectors; many of them take several turns, so that other work can run. @throws as `writeVector` */
  #write(): void {
    const { inputs, terms } = this.#deps
    let bytes = 0
    while (this.vectors.length < inputs && bytes < TURN_BYTES) {
      const vector = this.#providerVectors[this.vectors.length]
      if (this.#isClosed || vector === undefined) return
      const encoded = writeVector(vector, terms)
      this.#check(encoded.dimensions)
      this.vectors.push(encoded.json)
      bytes += Math.max(vector.bytes.length, encoded.json.length)
    }
    if (this.vectors.length === inputs) this.#onDone?.()
    else setImmediate(this.#goOn)
  }

  readonly #goOn = (): void => this.#attempt?.turn(() => this.#write())

  /** Vectors of different lengths are useless, and vectors that do not have the requested length would go unnoticed. */
  #check(dimensions: number): void {
    const requestedDimensions = this.#deps.terms.dimensions
    const expectedDimensions = requestedDimensions ?? this.#dimensions ?? dimensions
    this.#dimensions = dimensions
    if (dimensions === expectedDimensions) return
    throw new GatewayError(
      'provider_unavailable',
      requestedDimensions === null
        ? 'The provider sent vectors of different lengths'
        : `The provider sent vectors of ${dimensions} dimensions, not ${requestedDimensions}`,
    )
  }
}
