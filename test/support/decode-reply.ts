/** Passes a whole reply through a format's decoder, as the gateway does. */
import type { Decoder, Delta, Format } from '../../src/formats/format.ts'
import type { Endpoint } from '../../src/protocol/provider.ts'
import { AwsEventParser } from '../../src/providers/upstream/aws-events.ts'
import { SseParser } from '../../src/providers/upstream/sse.ts'

/** Divides a stream into frames for a decoder, and does not end it. @throws what the decoder throws */
export function readFrames(format: Format, decoder: Decoder, chunks: readonly Buffer[]): void {
  const onFrame = (event: string, data: string) => decoder.frame(event, data)
  const parser = format.framing(true) === 'aws-events' ? new AwsEventParser(onFrame) : new SseParser(onFrame)
  for (const chunk of chunks) parser.push(chunk)
  parser.end()
}

/** @throws what the decoder throws: GatewayError for a reply that is none or is cut */
export function decodeStream(format: Format, chunks: readonly Buffer[], endpoint?: Endpoint): Delta[] {
  const deltas: Delta[] = []
  const decoder = format.decoder(delta => deltas.push(delta), endpoint)
  readFrames(format, decoder, chunks)
  decoder.end()
  return deltas
}

/** @throws as {@link decodeStream} */
export function decodeBody(format: Format, body: string): Delta[] {
  const deltas: Delta[] = []
  const decoder = format.decoder(delta => deltas.push(delta))
  decoder.frame('', body, true)
  decoder.end()
  return deltas
}

/** A reply of either kind; one that is no stream is put together from its chunks. @throws as {@link decodeStream} */
export function decodeReply(format: Format, streamed: boolean, chunks: readonly Buffer[]): Delta[] {
  return streamed ? decodeStream(format, chunks) : decodeBody(format, Buffer.concat(chunks).toString('utf8'))
}
