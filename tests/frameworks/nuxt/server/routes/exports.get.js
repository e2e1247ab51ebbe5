import { defineEventHandler, toWebRequest } from 'h3';
import { download } from '../../limits.mjs';

export default defineEventHandler((event) => download(toWebRequest(event), event));
