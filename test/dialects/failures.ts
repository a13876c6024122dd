/** What failures tell of in every dialect. */
import { GatewayError } from '../../src/errors.ts'
import type { GatewayMetadata } from '../../src/protocol/response.ts'

export const NONE = { id: 'gen-1-x', metadata: null, usage: null, request: null }
export const METADATA: GatewayMetadata = {
  requested: 'acme/m',
  strategy: 'direct',
  region: 'local',
  summary: '',
  attempt: 0,
  is_byok: false,
  endpoints: { available: [], total: 0 },
}

/** A reply of one text and one call, which a plugin withheld. */
export function withheld(): GatewayError {
  const rejected = [
    {
      type: 'message',
      id: 'msg_1',
      role: 'assistant',
      content: [{ type: 'output_text', text: 'no', annotations: [] }],
    },
    { type: 'function_call', id: 'fc_1', call_id: 'c1', name: 'f', arguments: '{}' },
  ]
  return new GatewayError('permission_denied', 'Alignment plugin: broken', {
    metadata: { alignment: { calls: [], rejected } },
  })
}
