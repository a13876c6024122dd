/** Decodes a reply with vectors as an attempt does: from its bytes to the JSON of each vector. */

import { parseFrame, recordOrEmpty } from '../../src/base/json.ts'
import type { EmbeddingsFormat } from '../../src/formats/embeddings/format.ts'
import { type VectorTerms, writeVector } from '../../src/formats/embeddings/vector.ts'
import { VectorBody } from '../../src/formats/embeddings/vector-body.ts'
import type { Usage } from '../../src/formats/format.ts'

export const AS_FLOATS: VectorTerms = { encoding: 'float', dimensions: null, isInt8: false }

interface DecodedVectors {
  readonly upstreamId: string | null
  readonly usage: Usage | null
  /** As a client reads them. */
  readonly vectors: readonly (readonly number[] | string)[]
  /** The document that was parsed at once, in characters. */
  readonly restChars: number
}

/** @throws GatewayError as the parts do */
export function decodeVectors(
  format: EmbeddingsFormat,
  chunks: readonly Buffer[],
  inputs: number,
  terms: VectorTerms = AS_FLOATS,
): DecodedVectors {
  const body = new VectorBody()
  for (const chunk of chunks) body.push(chunk)
  const rest = body.text()
  const { upstreamId, usage, vectors } = format.decode(recordOrEmpty(parseFrame(rest)), inputs)
  return {
    upstreamId,
    usage,
    vectors: vectors.map(value => JSON.parse(String(writeVector(body.vector(value), terms).json))),
    restChars: rest.length,
  }
}

/** The numbers of a vector in base64, read one by one. */
export function float32s(base64: string): number[] {
  const bytes = Buffer.from(base64, 'base64')
  return Array.from({ length: bytes.length / 4 }, (_, at) => bytes.readFloatLE(at * 4))
}
