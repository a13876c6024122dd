/** What the pipeline offers to the front ends: one verb. */

import type { Outcome, Sink } from './answer/sink.ts'
import type { ClientRequest } from './exchange.ts'

export interface Gateway {
  /** Runs a validated request to its end. Never rejects: whatever happens is in the outcome or in the sink. */
  respond(call: ClientRequest, sink: Sink): Promise<Outcome>
}
