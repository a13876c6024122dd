/**
 * The apply_patch server tool: validates the model's patch, and leaves it to the client to apply. An invalid patch goes
 * back to the model with the reason. Responses only.
 */
import { GatewayError } from '../../base/errors.ts'
import type {
  FunctionDeclaration,
  RequestedTool,
  ServerTool,
  ToolCall,
  ToolDeclaration,
  ToolEndpoint,
  ToolEntry,
} from '../../exchange/server-tool.ts'
import { DIALECT_ABILITIES } from '../../protocol/dialect-abilities.ts'
import { objectSchema } from '../../protocol/json/object-schema.ts'
import type { Tool } from '../../protocol/tools.ts'
import { PatchFault, type PatchOperation, parseOperation } from './apply-patch/operation.ts'

const NATIVE_TYPE = 'apply_patch'

type Fields = Readonly<Record<string, unknown>>

export function createApplyPatch(): ServerTool {
  return {
    name: 'apply_patch',
    native: [NATIVE_TYPE],
    open(entries, exchange) {
      const [first, second] = entries
      if (first !== undefined && !DIALECT_ABILITIES[exchange.dialect].patches)
        throw new GatewayError(
          'invalid_request',
          `${first.path}.type: apply_patch works only with POST /v1/responses`,
        )
      if (second !== undefined)
        throw new GatewayError('invalid_request', `${second.path}.type: apply_patch is already in the list`)
      return {
        declare: endpoint => entries.map(entry => declare(entry, endpoint)),
        firstForm: call => fieldsOf(call, operationOf(call)),
        leaves: call => !(operationOf(call) instanceof PatchFault),
        run(call, progress) {
          const operation = operationOf(call)
          if (operation instanceof PatchFault) {
            return {
              item: { ...fieldsOf(call, operation), status: 'incomplete' },
              result: JSON.stringify({ error: operation.message }),
            }
          }
          if ('diff' in operation) {
            const { diff } = operation
            progress({ name: 'apply_patch_call_operation_diff.delta', fields: { delta: diff } })
            progress({ name: 'apply_patch_call_operation_diff.done', fields: { diff } })
          }
          return { item: fieldsOf(call, operation), result: '', next: 'end-turn' }
        },
      }
    },
  }
}

function declare({ tool, path }: ToolEntry, endpoint: ToolEndpoint): ToolDeclaration {
  const engine = tool.type === NATIVE_TYPE ? 'auto' : (tool.parameters?.['engine'] ?? 'auto')
  if ((engine === 'auto' || engine === 'native') && endpoint.hosts(NATIVE_TYPE))
    return { native: { type: NATIVE_TYPE } as Tool }
  if (engine === 'native')
    throw new GatewayError(
      'invalid_request',
      `${path}.parameters.engine: this model has no apply_patch of its own; use auto or gateway`,
    )
  return declaration(tool)
}

function declaration(tool: RequestedTool): FunctionDeclaration {
  return {
    tool,
    name: 'apply_patch',
    description:
      'Changes one file of the project. For create_file every line of the diff begins with +. For update_file the diff is in V4A form: sections that may begin with "@@ line of the file", then lines of context that begin with a blank, removed ones with - and added ones with +. delete_file has no diff. Paths are relative.',
    parameters: objectSchema(['type', 'path'], {
      type: { type: 'string', enum: ['create_file', 'update_file', 'delete_file'] },
      path: { type: 'string' },
      diff: { type: 'string' },
    }),
  }
}

function operationOf({ arguments: args }: ToolCall): PatchOperation | PatchFault {
  // Some models nest the operation, as the item of the interface does.
  const { operation } = args
  const fields =
    typeof operation === 'object' && operation !== null ? (operation as ToolCall['arguments']) : args
  try {
    return parseOperation(fields)
  } catch (thrown) {
    if (thrown instanceof PatchFault) return thrown
    throw thrown
  }
}

/** A client applies every apply_patch_call, so an invalid patch becomes an item of the gateway's own. */
function fieldsOf({ callId, tool }: ToolCall, operation: PatchOperation | PatchFault): Fields {
  if (operation instanceof PatchFault)
    return tool.type === NATIVE_TYPE ? { type: 'gateway:apply_patch', call_id: callId } : { call_id: callId }
  const fields = { call_id: callId, operation }
  return tool.type === NATIVE_TYPE ? { type: 'apply_patch_call', ...fields } : fields
}
