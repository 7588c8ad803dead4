# labelmodels/label_model.py, lines 78-103
            # Training phase
            self.train()  # Sets model to training mode
            running_loss = 0.0
            epoch_start = time.time()
            for i_batch, inputs in enumerate(batches):
                optimizer.zero_grad()

                # forward and backward
                batch = self._to_device(inputs)
                loss = -1 * torch.mean(self(*batch))
                loss = loss + self._get_regularization_loss()
                running_loss += loss
                loss.backward(retain_graph=True)
                optimizer.step()
                if i_batch % 25 == 24:
                    log_progress(epoch, i_batch, running_loss)
            epoch_loss = running_loss / len(batches)
