/**
 * Resumable streams: `X-Gateway-Resumable: true`. The exchange of such a stream continues after its client has
 * disconnected. It ends when the stream has had no reader for a whole window, at its deadline, or when the gateway
 * stops.
 */

import { GatewayError, refuseField } from '../base/errors.ts'
import type { Dialect } from '../dialects/dialect.ts'
import type { ClientRequest } from '../exchange/exchange.ts'
import { DIALECT_ABILITIES } from '../protocol/dialect-abilities.ts'
import type { TranscriptNotice } from '../storage/transcripts/transcripts.ts'
import type { InferenceParts } from './inference-parts.ts'
import type { ApiRequest, Reply } from './operation.ts'
import { ResumableSink, type StreamFrames } from './resumable-sink.ts'
import { transcriptId } from './resume.ts'

export const RESUMABLE_HEADER = 'x-gateway-resumable'
/** The header's name in answers and messages. */
const HEADER_IN_MESSAGES = 'X-Gateway-Resumable'

/**
 * Opens the stream of a request with the header; null if the header is false.
 * @throws GatewayError `invalid_request` for another value, and for requests without a resumable stream
 */
export function openResumable(
  dialect: Dialect,
  deps: InferenceParts,
  call: ClientRequest,
  request: ApiRequest,
  reply: Reply,
  frames: StreamFrames,
): ResumableSink | null {
  const flag = request.headers.get(RESUMABLE_HEADER)?.toLowerCase()
  if (flag === 'false') return null
  if (flag !== 'true') throw refuseField(HEADER_IN_MESSAGES, 'must be true or false')
  if (!DIALECT_ABILITIES[dialect.name].resumes) {
    throw refuseField(
      HEADER_IN_MESSAGES,
      'works only with POST /responses, /chat/completions and /messages; leave it out here',
    )
  }
  if (call.request.stream !== true) {
    throw refuseField(
      HEADER_IN_MESSAGES,
      'works only with streams: send "stream": true, or leave this header out',
    )
  }
  const { context } = request
  let isKept = true
  let hasLeft = false
  const giveUp = (): void =>
    context.abort(
      new GatewayError('client_closed', 'The client disconnected, and the stream was not resumed'),
    )
  const follow = (notice: TranscriptNotice): void => {
    if (notice === 'read') {
      sink.readAgain()
      return
    }
    isKept = false
    if (hasLeft) giveUp()
  }
  const id = transcriptId(dialect.name, context.id)
  const { keyHash } = call.caller
  const writer = deps.transcripts.open(id, keyHash, follow)
  const keeping = { seal: deps.frameSeal, owner: [id, keyHash] }
  const sink = new ResumableSink(reply, frames, writer, deps.stream, keeping)
  context.outlive(() => {
    hasLeft = true
    sink.leave()
    if (!isKept) giveUp()
  })
  return sink
}
