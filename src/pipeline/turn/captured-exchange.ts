/**
 * Recorded exchanges: those that a capture includes. Their transport is observed, and their record is created after the
 * client has been sent the end of the answer. All other exchanges have no recording, and never run this code.
 */

import type { GatewayError } from '../../base/errors.ts'
import type { ClientRequest } from '../../exchange/exchange.ts'
import type { Observation, Observer } from '../../exchange/observer.ts'
import type { Transport } from '../../providers/upstream/transport.ts'
import type { Outcome } from '../answer/sink.ts'
import type { RunningExchange } from '../exchange-stages.ts'

/** Opens the recording of an exchange, if a capture includes it. */
export function openRecording(
  captures: Observer,
  client: Transport,
  exchange: RunningExchange,
  request: ClientRequest,
): void {
  const recording = captures.open(request)
  if (recording === null) return
  exchange.recording = recording
  exchange.answer.isRead = true
  exchange.transport = recording.overheard(exchange.transport ?? client)
}

/** Reports the end of an exchange, and creates its record. */
export function tellRecorded(
  recording: Observation,
  exchange: RunningExchange,
  error: GatewayError | null,
  sendEnd: () => Outcome,
): Outcome {
  try {
    const outcome = sendEnd()
    recording.end(exchange, {
      isReplyGuarded: exchange.guarding?.reply != null,
      // Output before a failure was dropped if the failure is the whole answer.
      output: outcome.answered ? exchange.answer.output : null,
      error,
    })
    return outcome
  } finally {
    recording.drop()
  }
}
