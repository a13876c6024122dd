/** File names given by callers and models. They are for display and search, never part of a path. Pure. */
import { GatewayError } from '../../base/errors.ts'

const NAME_MAX_CHARS = 255
/** Control characters, characters that only change how text is shown, unassigned ones, and lone surrogates. */
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cn}\p{Cs}\p{Zl}\p{Zp}]/gu

/**
 * The last part of a path, without invisible characters.
 * @param field names it in errors
 * @throws GatewayError `invalid_request`
 */
export function cleanFilename(text: string, field: string): string {
  // Normalized first, because some characters become separators only in the stored form.
  const plain = text.normalize('NFC').replaceAll(HIDDEN, '')
  const name = plain.slice(Math.max(plain.lastIndexOf('/'), plain.lastIndexOf('\\')) + 1).trim()
  if (name === '' || name === '.' || name === '..')
    throw new GatewayError('invalid_request', `${field}: must end in a file name`)
  if (name.length > NAME_MAX_CHARS)
    throw new GatewayError('invalid_request', `${field}: must have at most ${NAME_MAX_CHARS} characters`)
  return name
}
