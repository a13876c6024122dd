/**
 * The text_editor server tool: views and edits text files of the workspace. A change creates a new file with the same
 * name.
 */
import type {
  FunctionDeclaration,
  RequestedTool,
  ServerTool,
  ToolCall,
  ToolOutcome,
} from '../../../exchange/server-tool.ts'
import { objectSchema } from '../../../protocol/json/object-schema.ts'
import {
  replaceOnce,
  requiredArgument,
  StoredTexts,
  type TextDeps,
  TextFault,
  textArgument,
} from '../stored-texts.ts'

const COMMANDS = ['view', 'create', 'str_replace', 'insert'] as const
type EditorCommand = (typeof COMMANDS)[number]
/** Maximum characters that one view shows. */
const MAX_VIEW_CHARS = 100_000

type Args = ToolCall['arguments']
type RunCommand = (texts: StoredTexts, filename: string, args: Args, signal: AbortSignal) => Promise<string>

export function createTextEditor(deps: TextDeps): ServerTool {
  return {
    name: 'text_editor',
    open(entries, exchange) {
      const texts = new StoredTexts(deps, exchange)
      return {
        declare: () => entries.map(({ tool }) => declaration(tool)),
        firstForm: call => fieldsOf(call),
        run: (call, _, signal) => run(texts, call, signal),
      }
    },
  }
}

function declaration(tool: RequestedTool): FunctionDeclaration {
  const text = (description: string) => ({ type: 'string', description })
  return {
    tool,
    name: 'text_editor',
    description:
      'Edits text files of the workspace. view shows lines with their numbers; create writes a file; str_replace replaces old_str, which must be in the file exactly once; insert puts new_str after the line insert_line (0: before the first).',
    parameters: objectSchema(['command', 'path'], {
      command: { type: 'string', enum: COMMANDS },
      path: text('The name of the file; there are no folders'),
      file_text: text('For create: the whole text'),
      old_str: text('For str_replace'),
      new_str: text('For str_replace and insert'),
      insert_line: { type: 'integer', minimum: 0 },
      view_range: {
        type: 'array',
        items: { type: 'integer' },
        description: 'For view: first and last line; -1 is the end',
      },
    }),
  }
}

function fieldsOf({ arguments: { command, path } }: ToolCall): Readonly<Record<string, unknown>> {
  return {
    ...(COMMANDS.some(candidate => candidate === command) ? { command } : {}),
    ...(typeof path === 'string' ? { filePath: path } : {}),
  }
}

async function run(texts: StoredTexts, call: ToolCall, signal: AbortSignal): Promise<ToolOutcome> {
  const { arguments: args } = call
  try {
    const command = COMMANDS.find(candidate => candidate === args['command'])
    if (command === undefined) throw new TextFault(`command: must be one of ${COMMANDS.join(', ')}`)
    const result = await COMMAND_RUNS[command](
      texts,
      filenameOf(requiredArgument(args, 'path')),
      args,
      signal,
    )
    return { item: fieldsOf(call), result }
  } catch (thrown) {
    if (!(thrown instanceof TextFault)) throw thrown
    return {
      item: { ...fieldsOf(call), status: 'incomplete' },
      result: JSON.stringify({ error: thrown.message }),
    }
  }
}

/** Refuses folders, because two files of one name in different folders would be one file here. */
function filenameOf(path: string): string {
  const name = path.replace(/^(?:\.?\/)+/, '')
  if (name === '' || /[/\\]/.test(name))
    throw new TextFault('path: must be the name of a file; there are no folders')
  return name
}

const COMMAND_RUNS: Readonly<Record<EditorCommand, RunCommand>> = {
  async view(texts, filename, args, signal) {
    const lines = linesOf(await texts.read(await texts.find({ filename }), signal))
    const [first, last] = rangeOf(args['view_range'], lines.length)
    let numberedLines = ''
    for (let number = first; number <= last; number++) {
      numberedLines += `${number}\t${lines[number - 1]}\n`
      if (numberedLines.length > MAX_VIEW_CHARS)
        return `${numberedLines.slice(0, MAX_VIEW_CHARS)}\n[cut at line ${number} of ${lines.length}]`
    }
    return numberedLines
  },
  async create(texts, filename, args) {
    await texts.write(filename, requiredArgument(args, 'file_text'))
    return 'The file was written.'
  },
  async str_replace(texts, filename, args, signal) {
    const oldText = requiredArgument(args, 'old_str')
    const text = await texts.read(await texts.find({ filename }), signal)
    await texts.write(filename, replaceOnce(text, oldText, textArgument(args, 'new_str') ?? ''))
    return 'The text was replaced.'
  },
  async insert(texts, filename, args, signal) {
    const inserted = textArgument(args, 'insert_text') ?? requiredArgument(args, 'new_str')
    const text = await texts.read(await texts.find({ filename }), signal)
    const lines = linesOf(text)
    const line = args['insert_line']
    if (typeof line !== 'number' || !Number.isInteger(line) || line < 0 || line > lines.length)
      throw new TextFault(`insert_line: must be an integer from 0 to ${lines.length}`)
    const finalLineFeed = text.endsWith('\n') || text === '' ? '\n' : ''
    const newLines = [...lines.slice(0, line), ...linesOf(inserted), ...lines.slice(line)]
    await texts.write(filename, newLines.join('\n') + finalLineFeed)
    return 'The text was inserted.'
  },
}

/** The lines, without the empty text after the last line end. */
function linesOf(text: string): string[] {
  const lines = text.split('\n')
  if (lines.at(-1) === '') lines.pop()
  return lines
}

function rangeOf(range: unknown, lines: number): readonly [number, number] {
  if (range === undefined || range === null) return [1, lines]
  const [first, last] = Array.isArray(range) ? (range as unknown[]) : []
  const end = last === -1 ? lines : last
  if (
    typeof first !== 'number' ||
    typeof end !== 'number' ||
    !Number.isInteger(first) ||
    !Number.isInteger(end) ||
    first < 1 ||
    end < first
  )
    throw new TextFault('view_range: must be two line numbers, counted from 1')
  return [first, Math.min(end, lines)]
}
