/** What a caller is told when an exchange fails: what is known beyond the error itself goes with it. */
import { GatewayError } from '../errors.ts'
import type { GatewayMetadata } from '../protocol/response.ts'
import type { Charged } from './answer/sink.ts'
import type { Exchange } from './exchange.ts'
import { routingMetadata } from './metadata.ts'

/** What was judged and read before the exchange failed is told with the failure. */
export function reported({ alignment, parsedFiles }: Exchange, error: GatewayError): GatewayError {
  const judged =
    alignment !== null && alignment.calls.length > 0 && error.metadata?.['alignment'] === undefined
  if (!judged && parsedFiles.length === 0) return error
  return rewritten(error, error.message, {
    ...error.metadata,
    ...(judged ? { alignment } : {}),
    ...(parsedFiles.length === 0 ? {} : { file_annotations: parsedFiles }),
  })
}

/** A provider that finds an input too long does not know what could be done about it here. */
export function advised({ attempts, request }: Exchange, error: GatewayError): GatewayError {
  const isTold = error.code === 'context_length_exceeded' && attempts.at(-1)?.status != null
  const compressing = request.plugins?.find(plugin => plugin.id === 'context-compression')
  if (!isTold || (compressing !== undefined && compressing.enabled !== false)) return error
  const advice = 'Shorten the input, or add the plugin context-compression.'
  const message = error.message.trimEnd()
  return rewritten(error, `${message}${message.endsWith('.') ? '' : '.'} ${advice}`, error.metadata)
}

function rewritten(
  error: GatewayError,
  message: string,
  metadata: Readonly<Record<string, unknown>> | undefined,
): GatewayError {
  const { code, retryAfterSeconds, headers } = error
  return new GatewayError(code, message, {
    ...(metadata === undefined ? {} : { metadata }),
    ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
    ...(headers === undefined ? {} : { headers }),
    cause: error,
  })
}

/** What goes beside an error that is all the caller gets. */
export function told(exchange: Exchange): { metadata: GatewayMetadata | null; charged: Charged | null } {
  const { id, shownUsage: usage, withMetadata, candidates, pipeline } = exchange
  return {
    metadata:
      withMetadata && candidates.length + pipeline.length > 0 ? routingMetadata(exchange, false) : null,
    charged: usage === null ? null : { id, usage },
  }
}
