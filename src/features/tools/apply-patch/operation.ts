/**
 * apply_patch operations with diffs in V4A format: validates them strictly, so that a client only gets operations that
 * it can apply. Pure.
 */

export type PatchOperation =
  | { readonly type: 'create_file' | 'update_file'; readonly path: string; readonly diff: string }
  | { readonly type: 'delete_file'; readonly path: string }

/** An invalid patch. The message is for the model. */
export class PatchFault extends Error {}

const TYPES = ['create_file', 'update_file', 'delete_file'] as const
const PATH_MAX_CHARS = 1_024
const DIFF_MAX_CHARS = 1024 * 1024
/** Excludes control characters and characters that only change how a path looks. */
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u
const DRIVE = /^[A-Za-z]:/

/** @throws PatchFault */
export function parseOperation(args: Readonly<Record<string, unknown>>): PatchOperation {
  const { type, path, diff } = args
  const kind = TYPES.find(each => each === type)
  if (kind === undefined) throw new PatchFault(`type: must be one of ${TYPES.join(', ')}`)
  if (typeof path !== 'string') throw new PatchFault('path: is required')
  checkPath(path)
  if (kind === 'delete_file') {
    if (diff !== undefined && diff !== null && diff !== '')
      throw new PatchFault('diff: must be left out for delete_file')
    return { type: kind, path }
  }
  if (typeof diff !== 'string') throw new PatchFault('diff: is required')
  if (diff.length > DIFF_MAX_CHARS)
    throw new PatchFault(`diff: must have at most ${DIFF_MAX_CHARS} characters`)
  if (diff.includes('\0')) throw new PatchFault('diff: must not contain NUL')
  const lines = linesOf(diff)
  if (
    lines.some(line =>
      /^\*\*\* (?:Begin Patch|End Patch|Add File|Update File|Delete File|Move to)/.test(line),
    )
  )
    throw new PatchFault('diff: must have the lines of one file, without *** Begin Patch and file headers')
  if (kind === 'create_file') checkCreation(lines)
  else checkUpdate(lines)
  return { type: kind, path, diff }
}

/** A relative path within the client's folder on every system. */
function checkPath(path: string): void {
  if (path.length === 0 || path.length > PATH_MAX_CHARS)
    throw new PatchFault(`path: must have 1 to ${PATH_MAX_CHARS} characters`)
  if (HIDDEN.test(path)) throw new PatchFault('path: contains invisible characters')
  const parts = path.split(/[/\\]/)
  if (parts[0] === '' || DRIVE.test(path) || parts[0] === '~') throw new PatchFault('path: must be relative')
  if (parts.some(part => part.trim() === '' || /^\.{1,2}$/.test(part.trim())))
    throw new PatchFault('path: must not have empty parts, . or ..')
}

function checkCreation(lines: readonly string[]): void {
  const wrongLine = lines.findIndex(line => !line.startsWith('+'))
  if (wrongLine !== -1)
    throw new PatchFault(`diff: line ${wrongLine + 1} must begin with +, like all lines of a new file`)
}

/** Sections, each with an optional head `@@ …`; their lines begin with a blank, `-` or `+`. */
function checkUpdate(lines: readonly string[]): void {
  let changes = 0
  let section = { at: 0, lines: 0, changes: 0 }
  let ended = false
  const close = (): void => {
    if (section.lines > 0 && section.changes === 0)
      throw new PatchFault(`diff: the section at line ${section.at + 1} changes nothing`)
  }
  for (const [index, line] of lines.entries()) {
    const number = index + 1
    if (ended && !line.startsWith('@@'))
      throw new PatchFault(
        `diff: line ${number} follows *** End of File, after which only a new section (@@) may begin`,
      )
    if (line.startsWith('@@')) {
      if (line !== '@@' && !line.startsWith('@@ '))
        throw new PatchFault(`diff: line ${number} must be @@, or @@ and a line of the file`)
      close()
      // Several heads may follow each other: each narrows down the position of the section.
      section = { at: index, lines: 0, changes: 0 }
      ended = false
    } else if (line === '*** End of File') {
      if (section.lines === 0) throw new PatchFault(`diff: line ${number} ends a section without lines`)
      ended = true
    } else if (line === '' || ' +-'.includes(line.charAt(0))) {
      // An empty line is a context line that lost its blank.
      const isChange = line.startsWith('+') || line.startsWith('-')
      section.lines++
      if (isChange) section.changes++
      if (isChange) changes++
    } else {
      throw new PatchFault(`diff: line ${number} must begin with a blank, + or -, or be @@`)
    }
  }
  close()
  if (changes === 0) throw new PatchFault('diff: has no line that begins with + or -')
  if (section.lines === 0) throw new PatchFault(`diff: the section at line ${section.at + 1} has no lines`)
}

/** Without the empty text after the last line end. */
function linesOf(diff: string): string[] {
  const lines = diff.split(/\r?\n/)
  if (lines.at(-1) === '') lines.pop()
  return lines
}
