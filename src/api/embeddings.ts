/** The operation POST /embeddings: one JSON document, written by the dialect. */

import { serverTiming } from '../base/metrics/stages.ts'
import type { EmbeddingsDialect } from '../dialects/embeddings.ts'
import type { EmbeddingsCall } from '../pipeline/embed.ts'
import { answerOnce, IDEMPOTENCY_HEADER, type IdempotencyDeps } from './idempotency.ts'
import type { InferenceParts } from './inference-parts.ts'
import type { ApiRequest, Handler, Reply } from './operation.ts'
import { refuseProof } from './proof.ts'
import { callOf, failureDetails, parseBody } from './request-facts.ts'

/** @param bodyOf builds the body for the dialect if parts of it are in the path */
export function createEmbeddingsHandler(
  dialect: EmbeddingsDialect,
  deps: Pick<InferenceParts, 'gateway' | 'dataRegionOf'> & IdempotencyDeps,
  bodyOf: ((request: ApiRequest) => unknown) | null = null,
): Handler {
  const readCall = (request: ApiRequest, reply: Reply): EmbeddingsCall => {
    const body = bodyOf === null ? request.body : bodyOf(request)
    const { settings, request: parsed } = parseBody(dialect, request, reply, body)
    return { ...callOf(dialect, request, reply, deps.dataRegionOf, parsed), settings }
  }
  const handler: Handler = (request, reply) => {
    if (request.headers.has(IDEMPOTENCY_HEADER)) {
      return answerOnce(deps, { callOf: readCall, handler }, request, reply)
    }
    if (request.bodyDigest !== null) refuseProof(request.headers, 'embeddings')
    const call = readCall(request, reply)
    const wait = request.context.waitForSlot(call.request)
    if (wait !== null) return wait.then(() => answer(dialect, deps, call, reply))
    return answer(dialect, deps, call, reply)
  }
  return handler
}

async function answer(
  dialect: EmbeddingsDialect,
  { gateway }: Pick<InferenceParts, 'gateway'>,
  call: EmbeddingsCall,
  reply: Reply,
): Promise<void> {
  const outcome = await gateway.embed(call)
  reply.summary = outcome.summary
  if (outcome.answered) {
    if (call.withMetadata) reply.header('Server-Timing', serverTiming(call.context.watch))
    reply.written(dialect.document(outcome.result))
  } else if (outcome.error.code !== 'client_closed') {
    const error = dialect.clientError?.(outcome.error) ?? outcome.error
    reply.failure(error, failureDetails(call, outcome))
  }
}
