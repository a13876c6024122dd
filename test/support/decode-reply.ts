/** A whole reply through a format's decoder, as the gateway feeds it. */
import type { Delta, Format } from '../../src/formats/format.ts'
import { SseParser } from '../../src/upstream/sse.ts'

/** @throws what the decoder throws: GatewayError for a reply that is none or is cut */
export function decodeStream(format: Format, chunks: readonly Buffer[]): Delta[] {
  const deltas: Delta[] = []
  const decoder = format.decoder(delta => deltas.push(delta))
  const parser = new SseParser((event, data) => decoder.frame(event, data))
  for (const chunk of chunks) parser.push(chunk)
  parser.end()
  decoder.end()
  return deltas
}

/** @throws as {@link decodeStream} */
export function decodeBody(format: Format, body: string): Delta[] {
  const deltas: Delta[] = []
  const decoder = format.decoder(delta => deltas.push(delta))
  decoder.frame('', body)
  decoder.end()
  return deltas
}

/** A reply of either kind; one that is no stream is put together from its chunks. @throws as {@link decodeStream} */
export function decodeReply(format: Format, streamed: boolean, chunks: readonly Buffer[]): Delta[] {
  return streamed ? decodeStream(format, chunks) : decodeBody(format, Buffer.concat(chunks).toString('utf8'))
}
