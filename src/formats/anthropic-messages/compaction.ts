/**
 * A compaction block of Anthropic as the `encrypted_content` of a compaction item, and back. The block has
 * several fields that must return unchanged, the item has one that nobody but its maker reads: so the block
 * travels in it as a whole. Pure.
 */
import { jsonText, record, text, type Wire } from './wire.ts'

/** Tells our packed blocks from compactions of other providers, which Anthropic cannot read. */
const MARK = 'anthropic-claude-v1:'

/** The fields of a block that are sent back. */
const KEPT = ['content', 'encrypted_content', 'signature', 'tool_changes'] as const

export function sealCompaction(block: Wire): string {
  const kept = KEPT.flatMap(name => (block[name] === undefined ? [] : [[name, block[name]] as const]))
  return MARK + Buffer.from(jsonText(Object.fromEntries(kept))).toString('base64url')
}

/** The block to send back, or null when the item is another provider's. */
export function openCompaction(encryptedContent: unknown): Wire | null {
  const sealed = text(encryptedContent)
  if (!sealed.startsWith(MARK)) return null
  try {
    const found = record(JSON.parse(Buffer.from(sealed.slice(MARK.length), 'base64url').toString('utf8')))
    if (found === null) return null
    const kept = KEPT.flatMap(name => (found[name] === undefined ? [] : [[name, found[name]] as const]))
    return { type: 'compaction', ...Object.fromEntries(kept) }
  } catch {
    return null
  }
}
