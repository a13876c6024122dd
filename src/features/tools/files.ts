/**
 * The files server tool: lists, reads, writes and edits files of the workspace. An edit creates a new file with the
 * same name.
 */
import type {
  FunctionDeclaration,
  RequestedTool,
  ServerTool,
  ToolCall,
  ToolOutcome,
} from '../../exchange/server-tool.ts'
import { objectSchema } from '../../protocol/json/object-schema.ts'
import type { FileRecord } from '../../storage/files.ts'
import {
  replaceOnce,
  requiredArgument,
  StoredTexts,
  type TextDeps,
  TextFault,
  textArgument,
} from './stored-texts.ts'

const MAX_LISTED_FILES = 100
const OPERATIONS = ['list', 'read', 'write', 'edit'] as const
type Operation = (typeof OPERATIONS)[number]

type Fields = Readonly<Record<string, unknown>>
type RunOperation = (texts: StoredTexts, args: ToolCall['arguments'], signal: AbortSignal) => Promise<Fields>

export function createFilesTool(deps: TextDeps): ServerTool {
  return {
    name: 'files',
    open(entries, exchange) {
      const texts = new StoredTexts(deps, exchange)
      return {
        declare: () => entries.map(({ tool }) => declaration(tool)),
        firstForm: fieldsOf,
        run: (call, _, signal) => run(deps, texts, call, signal),
      }
    },
  }
}

function declaration(tool: RequestedTool): FunctionDeclaration {
  const text = (description: string) => ({ type: 'string', description })
  return {
    tool,
    name: 'files',
    description:
      'Works with the files of the workspace: list, read, write, or edit (replaces old_string, which must be in the file exactly once). A file is named by file_id, or by filename, which means the newest file of that name. Writing and editing make a new file; earlier ones stay.',
    parameters: objectSchema(['operation'], {
      operation: { type: 'string', enum: OPERATIONS },
      file_id: text('For read and edit'),
      filename: text('For read, write and edit'),
      filename_filter: text('For list: a part of the name'),
      content: text('For write: the whole text'),
      old_string: text('For edit: the text to replace'),
      new_string: text('For edit: what takes its place'),
      new_filename: text('For edit: the name of the new file; default: the same'),
    }),
  }
}

function fieldsOf({ callId, arguments: args }: ToolCall): Fields {
  const itemFields: Record<string, unknown> = { call_id: callId, arguments: JSON.stringify(args) }
  for (const name of ['operation', 'file_id', 'filename'])
    if (typeof args[name] === 'string') itemFields[name] = args[name]
  return itemFields
}

async function run(
  deps: TextDeps,
  texts: StoredTexts,
  call: ToolCall,
  signal: AbortSignal,
): Promise<ToolOutcome> {
  const { arguments: args } = call
  try {
    const operation = OPERATIONS.find(candidate => candidate === args['operation'])
    if (operation === undefined) throw new TextFault(`operation: must be one of ${OPERATIONS.join(', ')}`)
    const result = await OPERATION_RUNS[operation](deps)(texts, args, signal)
    const { file_id, filename } = result
    const reference = file_id === undefined ? {} : { file_id, filename }
    return {
      item: { ...fieldsOf(call), ...reference, result: JSON.stringify(result) },
      result: JSON.stringify({ result }),
    }
  } catch (thrown) {
    if (!(thrown instanceof TextFault)) throw thrown
    const { message } = thrown
    return {
      item: { ...fieldsOf(call), status: 'incomplete', error: message },
      result: JSON.stringify({ error: message }),
    }
  }
}

const OPERATION_RUNS: Readonly<Record<Operation, (deps: TextDeps) => RunOperation>> = {
  list:
    ({ files }) =>
    async (texts, args) => {
      const nameHas = textArgument(args, 'filename_filter') ?? ''
      const page = await files.list(
        { ...texts.scope, ...(nameHas === '' ? {} : { nameContains: nameHas }) },
        MAX_LISTED_FILES,
      )
      const items = page?.items ?? []
      return {
        files: items.map(file => ({ ...nameAndId(file), bytes: file.bytes, created_at: file.createdAt })),
        has_more: page?.hasMore === true,
      }
    },
  read: () => async (texts, args, signal) => {
    const file = await texts.find(fileNamed(args))
    return { ...nameAndId(file), content: await texts.read(file, signal) }
  },
  write: () => async (texts, args) =>
    nameAndId(await texts.write(requiredArgument(args, 'filename'), requiredArgument(args, 'content'))),
  edit: () => async (texts, args, signal) => {
    const [oldText, newText] = [requiredArgument(args, 'old_string'), requiredArgument(args, 'new_string')]
    const file = await texts.find(fileNamed(args))
    const edited = replaceOnce(await texts.read(file, signal), oldText, newText)
    return nameAndId(await texts.write(textArgument(args, 'new_filename') ?? file.filename, edited))
  },
}

function fileNamed(args: ToolCall['arguments']): { id: string } | { filename: string } {
  const id = textArgument(args, 'file_id')
  if (id !== null && id !== '') return { id }
  const filename = textArgument(args, 'filename')
  if (filename === null || filename === '') throw new TextFault('file_id or filename: is required')
  return { filename }
}

function nameAndId({ id, filename }: FileRecord): Fields {
  return { file_id: id, filename }
}
