/**
 * Computer use: translates between the `computer` tool of the Messages API and that of Responses. The client performs
 * the actions, and sends a screenshot after each call. Actions without a counterpart keep their own names. Pure.
 */
import { filled, type Json, listOrEmpty, record, recordOrEmpty, textOrEmpty } from '../../base/json.ts'

/** The name by which the model calls the tool. */
export const COMPUTER = 'computer'

export const COMPUTER_TYPES: ReadonlySet<string> = new Set(['computer_use_preview', 'computer'])

/** The default screen size, which the provider recommends. */
const WIDTH = 1024
const HEIGHT = 768

interface Version {
  readonly type: string
  /** The feature of the API that has it. */
  readonly beta: string
}

const FIRST: Version = { type: 'computer_20250124', beta: 'computer-use-2025-01-24' }
const LATEST: Version = { type: 'computer_20251124', beta: 'computer-use-2025-11-24' }
/** Models before Opus 4.5 and Sonnet 4.6, and Sonnet 4.5 and Haiku 4.5. */
const OLDER = /3[.-]7|(?:sonnet|haiku)-4[.-]5|(?:opus|sonnet)-4(?:[.-][01](?!\d)|[-@](?:\d{8}|latest)|$)/

export function computerVersion(upstreamModel: string): Version {
  return OLDER.test(upstreamModel) ? FIRST : LATEST
}

/** The tool without a version, which `ofVersion` sets. Tools of clients of this API already have one. */
export function computerTool(tool: Json): Json {
  return {
    type: COMPUTER,
    name: COMPUTER,
    display_width_px: pixels(tool['display_width'], WIDTH),
    display_height_px: pixels(tool['display_height'], HEIGHT),
  }
}

/** The tools for a model, and the beta feature that they need; null: none of the tools is a computer. */
export function ofVersion(
  tools: readonly Json[],
  upstreamModel: string,
): { tools: readonly Json[]; beta: string | null } {
  if (!tools.some(isOurs)) return { tools, beta: null }
  const { type, beta } = computerVersion(upstreamModel)
  return { tools: tools.map(tool => (isOurs(tool) ? { ...tool, type } : tool)), beta }
}

function isOurs({ type, name }: Json): boolean {
  return name === COMPUTER && type === COMPUTER
}

function pixels(value: unknown, absent: number): number {
  return typeof value === 'number' ? value : absent
}

// Keys have other names in the two APIs.

const KEYS: readonly (readonly [theirs: string, ours: string])[] = [
  ['Return', 'ENTER'],
  ['Escape', 'ESC'],
  ['BackSpace', 'BACKSPACE'],
  ['Page_Up', 'PAGEUP'],
  ['Page_Down', 'PAGEDOWN'],
  ['Left', 'LEFT'],
  ['Right', 'RIGHT'],
  ['Up', 'UP'],
  ['Down', 'DOWN'],
  ['space', 'SPACE'],
  ['super', 'CMD'],
]
const TO_OURS: ReadonlyMap<string, string> = new Map(KEYS)
const TO_THEIRS: ReadonlyMap<string, string> = new Map(KEYS.map(([theirs, ours]) => [ours, theirs]))

function keysOf(text: string): readonly string[] {
  return text
    .split(/(?<=[^+])\+/)
    .map(key => TO_OURS.get(key) ?? (key.length === 1 ? key : key.toUpperCase()))
}

function keyText(keys: unknown): string {
  return listOrEmpty(keys)
    .map(textOrEmpty)
    .map(key => TO_THEIRS.get(key) ?? (MODIFIERS.has(key) ? key.toLowerCase() : withTitle(key)))
    .join('+')
}

const MODIFIERS: ReadonlySet<string> = new Set(['CTRL', 'ALT', 'SHIFT', 'META'])

function withTitle(key: string): string {
  return /^[A-Z]{2,}$/.test(key) ? `${key.charAt(0)}${key.slice(1).toLowerCase()}` : key
}

const BUTTONS: readonly (readonly [action: string, button: string])[] = [
  ['left_click', 'left'],
  ['right_click', 'right'],
  ['middle_click', 'wheel'],
]
const BUTTON_OF: ReadonlyMap<unknown, string> = new Map(BUTTONS)
const CLICK_OF: ReadonlyMap<unknown, string> = new Map(BUTTONS.map(([action, button]) => [button, action]))
/** Pixels per notch of a mouse wheel. */
const NOTCH = 100

/** The action of a call. `input`: the arguments that the model wrote. */
export function actionOf(input: Json): Json {
  const { action, coordinate, text, ...rest } = input
  const at = pointOf(coordinate)
  const heldKeys = filled(text)
  const withKeys = heldKeys === null ? {} : { keys: keysOf(heldKeys) }
  const button = BUTTON_OF.get(action)
  if (button !== undefined && at !== null) return { type: 'click', button, ...at, ...withKeys }
  switch (action) {
    case 'screenshot':
      return { type: 'screenshot' }
    case 'double_click':
      if (at !== null) return { type: 'double_click', ...at, ...withKeys }
      break
    case 'mouse_move':
      if (at !== null) return { type: 'move', ...at }
      break
    case 'left_click_drag': {
      const from = pointOf(rest['start_coordinate'])
      if (at !== null && from !== null) return { type: 'drag', path: [from, at] }
      break
    }
    case 'type':
      return { type: 'type', text: textOrEmpty(text) }
    case 'key':
      return { type: 'keypress', keys: keysOf(textOrEmpty(text)) }
    case 'scroll':
      if (at !== null) return { type: 'scroll', ...at, ...wheelOf(rest), ...withKeys }
      break
    case 'wait':
      return { type: 'wait', ...rest }
  }
  const { action: _, ...own } = input
  return { type: textOrEmpty(action), ...own }
}

function wheelOf({ scroll_direction: direction, scroll_amount: amount }: Json): Json {
  const pixels = NOTCH * (typeof amount === 'number' ? amount : 1)
  return {
    scroll_x: direction === 'right' ? pixels : direction === 'left' ? -pixels : 0,
    scroll_y: direction === 'down' ? pixels : direction === 'up' ? -pixels : 0,
  }
}

function pointOf(value: unknown): { readonly x: number; readonly y: number } | null {
  const [x, y] = listOrEmpty(value)
  return typeof x === 'number' && typeof y === 'number' ? { x, y } : null
}

/** The arguments of a call with this action: the inverse of `actionOf`. */
export function inputOf(action: Json): Json {
  const { type, ...rest } = action
  const coordinate = [rest['x'], rest['y']]
  const withKeys = listOrEmpty(rest['keys']).length === 0 ? {} : { text: keyText(rest['keys']) }
  switch (type) {
    case 'click': {
      const click = CLICK_OF.get(rest['button'])
      return click === undefined
        ? { action: 'left_click', coordinate }
        : { action: click, coordinate, ...withKeys }
    }
    case 'double_click':
      return { action: 'double_click', coordinate, ...withKeys }
    case 'move':
      return { action: 'mouse_move', coordinate }
    case 'drag': {
      const path = listOrEmpty(rest['path']).map(recordOrEmpty)
      const coordinates = (point: Json | undefined): unknown[] => [point?.['x'], point?.['y']]
      return {
        action: 'left_click_drag',
        start_coordinate: coordinates(path[0]),
        coordinate: coordinates(path.at(-1)),
      }
    }
    case 'type':
      return { action: 'type', text: textOrEmpty(rest['text']) }
    case 'keypress':
      return { action: 'key', text: keyText(rest['keys']) }
    case 'scroll':
      return { action: 'scroll', coordinate, ...directionOf(rest), ...withKeys }
    case 'wait':
      return { action: 'wait', duration: 1, ...rest }
    default:
      return { action: textOrEmpty(type), ...rest }
  }
}

function directionOf(action: Json): Json {
  const deltaX = Number(action['scroll_x'] ?? 0)
  const deltaY = Number(action['scroll_y'] ?? 0)
  const isDown = Math.abs(deltaY) >= Math.abs(deltaX)
  const direction = isDown ? (deltaY < 0 ? 'up' : 'down') : deltaX < 0 ? 'left' : 'right'
  const amount = Math.max(1, Math.round(Math.abs(isDown ? deltaY : deltaX) / NOTCH))
  return { scroll_direction: direction, scroll_amount: amount }
}

/** The actions of a replayed item: one, or a list in the newer spelling. */
export function actionsIn(item: Json): readonly Json[] {
  const list = listOrEmpty(item['actions']).map(recordOrEmpty)
  const action = record(item['action'])
  return list.length > 0 ? list : action === null ? [{ type: 'screenshot' }] : [action]
}
