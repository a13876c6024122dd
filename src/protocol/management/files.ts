/** The purposes of files that OpenAI defines. Pure. */
export const FILE_PURPOSES = ['assistants', 'batch', 'evals', 'fine-tune', 'user_data', 'vision'] as const
export type FilePurpose = (typeof FILE_PURPOSES)[number]
