/**
 * Tools of the Messages API that the client runs (`bash_*`, `text_editor_*`, `memory_*`, `computer_*`), as functions
 * for providers with other APIs. Anthropic's models know their arguments; other models get a description, so that the
 * client finds what it expects in each call. Pure. Data.
 */
import { isRecord, type Json, recordOrEmpty, wholeNumber } from '../../base/json.ts'

interface KnownTool {
  readonly description: string
  readonly properties: Readonly<Record<string, Json>>
  readonly required: readonly string[]
}

const DATE_SUFFIX = /_(\d{8})$/
/** Function names that all APIs accept. */
const FUNCTION_NAME = /^[A-Za-z0-9_-]{1,64}$/

const text = (description: string): Json => ({ type: 'string', description })
const number = (description: string): Json => ({ type: 'integer', description })
const point = (description: string): Json => ({
  type: 'array',
  items: { type: 'integer' },
  description,
})
const oneOf = (description: string, values: readonly string[]): Json => ({
  type: 'string',
  enum: values,
  description,
})

const BASH_TOOL: KnownTool = {
  description:
    'Runs a command in a bash session that lasts from call to call. The result is what the command wrote. Give either command or restart.',
  properties: {
    command: text('The command to run'),
    restart: { type: 'boolean', description: 'True: start a new session in place of the old one' },
  },
  required: [],
}

/** From this version on, the text of `insert` has its own field, and there is no undo command. */
const NEWER_EDITOR_VERSION = 20250429

function editorTool(version: number): KnownTool {
  const isNewer = version >= NEWER_EDITOR_VERSION
  const commands = ['view', 'create', 'str_replace', 'insert', ...(isNewer ? [] : ['undo_edit'])]
  const insertField = isNewer ? 'insert_text' : 'new_str'
  return {
    description: `Views and edits text files. view shows a file with line numbers, or lists a directory; create writes a file; str_replace replaces a text that occurs exactly once; insert puts ${insertField} after a line${isNewer ? '' : '; undo_edit takes back the last edit of the file'}.`,
    properties: {
      command: oneOf('What to do', commands),
      path: text('Absolute path of the file or directory'),
      view_range: point('view: the first and the last line, from 1; -1 as the last one: to the end'),
      file_text: text('create: the whole text of the file'),
      old_str: text('str_replace: the text to replace, exactly as it is in the file'),
      new_str: text(
        isNewer ? 'str_replace: the new text' : 'str_replace: the new text; insert: the text to insert',
      ),
      insert_line: number('insert: the number of the line after which to insert; 0: at the beginning'),
      ...(isNewer ? { insert_text: text('insert: the text to insert') } : {}),
    },
    required: ['command', 'path'],
  }
}

const MEMORY_TOOL: KnownTool = {
  description:
    'Keeps notes in files below /memories, which last from one conversation to the next. Look there first. view shows a file or lists a directory; create writes a file; str_replace replaces a text that occurs exactly once; insert inserts after a line; delete and rename work on files and directories.',
  properties: {
    command: oneOf('What to do', ['view', 'create', 'str_replace', 'insert', 'delete', 'rename']),
    path: text('Path that begins with /memories; for all commands but rename'),
    view_range: point('view: the first and the last line, from 1'),
    file_text: text('create: the whole text of the file'),
    old_str: text('str_replace: the text to replace'),
    new_str: text('str_replace: the new text'),
    insert_line: number('insert: the number of the line after which to insert; 0: at the beginning'),
    insert_text: text('insert: the text to insert'),
    old_path: text('rename: the path now'),
    new_path: text('rename: the new path'),
  },
  required: ['command'],
}

const FIRST_ACTIONS = [
  'key',
  'type',
  'mouse_move',
  'left_click',
  'left_click_drag',
  'right_click',
  'middle_click',
  'double_click',
  'screenshot',
  'cursor_position',
]
const LATER_ACTIONS = ['left_mouse_down', 'left_mouse_up', 'triple_click', 'scroll', 'hold_key', 'wait']
const LATER_COMPUTER_VERSION = 20250124

function computerTool(version: number, tool: Json): KnownTool {
  const isLater = version >= LATER_COMPUTER_VERSION
  const canZoom = tool['enable_zoom'] === true
  const [width, height] = ['display_width_px', 'display_height_px'].map(name => wholeNumber(tool[name]))
  const size = width == null || height == null ? '' : ` The screen has ${width} by ${height} pixels.`
  return {
    description: `Uses the screen, the mouse and the keyboard of a computer. Take a screenshot to see what an action did.${size}`,
    properties: {
      action: oneOf('What to do', [
        ...FIRST_ACTIONS,
        ...(isLater ? LATER_ACTIONS : []),
        ...(canZoom ? ['zoom'] : []),
      ]),
      coordinate: point('The point [x, y] of a mouse action, in pixels from the left and from the top'),
      text: text('type: the text; key, hold_key: the key or the keys, such as ctrl+s'),
      ...(isLater
        ? {
            start_coordinate: point('left_click_drag: the point [x, y] at which the drag begins'),
            scroll_direction: oneOf('scroll: where to', ['up', 'down', 'left', 'right']),
            scroll_amount: number('scroll: how many clicks of the wheel'),
            duration: { type: 'number', description: 'wait, hold_key: seconds' },
          }
        : {}),
      ...(canZoom ? { region: point('zoom: the part [x0, y0, x1, y1] of the screen') } : {}),
    },
    required: ['action'],
  }
}

const KNOWN_TOOLS: ReadonlyMap<string, (version: number, tool: Json) => KnownTool> = new Map([
  ['bash', () => BASH_TOOL],
  ['text_editor', editorTool],
  ['memory', () => MEMORY_TOOL],
  ['computer', computerTool],
])

/** The function that replaces a client tool of the Messages API; null: not a known one. */
export function knownFunction(native: Json): Json | null {
  const { type, name, cache_control: mark } = native
  if (typeof type !== 'string' || typeof name !== 'string' || !FUNCTION_NAME.test(name)) return null
  const version = Number(DATE_SUFFIX.exec(type)?.[1] ?? Number.NaN)
  const make = Number.isNaN(version) ? undefined : KNOWN_TOOLS.get(type.replace(DATE_SUFFIX, ''))
  if (make === undefined) return null
  const { description, properties, required } = make(version, native)
  return {
    type: 'function',
    name,
    description,
    parameters: { type: 'object', properties, required },
    ...(isRecord(mark) && mark['type'] === 'ephemeral' ? { cache_control: mark } : {}),
  }
}

/** The choice of such a tool as a choice of its function; null: not a known one. */
export function knownChoice(choice: Json, tools: readonly unknown[]): Json | null {
  const { name } = recordOrEmpty(choice['native'])
  if (typeof name !== 'string') return null
  const isKnown = tools.some(tool => {
    const nativeTool = recordOrEmpty(recordOrEmpty(tool)['native'])
    return nativeTool['name'] === name && knownFunction(nativeTool) !== null
  })
  return isKnown ? { type: 'function', name } : null
}
